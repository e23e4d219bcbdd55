/* SPDX-License-Identifier: MIT
 * Parameters of the device code in kernels.cu. */
#ifndef QUERN_TESTS_EMULATOR_KERNELS_H
#define QUERN_TESTS_EMULATOR_KERNELS_H

#include <stdint.h>

struct qrn_test_params {
    float *out;
};

struct qrn_test_mma_params {
    const void *a, *b;
    float *c;
    int32_t type;   /* 0: bf16, 1: f16, 2: bytes */
    int32_t n_rows; /* of b; the rest is 0 */
};

#endif
