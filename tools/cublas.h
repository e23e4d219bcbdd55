/* SPDX-License-Identifier: MIT
 * NVIDIA's library of matrix products, if the machine has it: a ceiling to measure against. */
#ifndef QUERN_TOOLS_CUBLAS_H
#define QUERN_TOOLS_CUBLAS_H

#include <quern/device.h>

/* Operations a second of a bf16 product n x n x n of random numbers on a device "cuda"; 0: there is no
 * such library, or it fails. */
double cublas_bf16_rate(struct qrn_device *dev, int n);

#endif
