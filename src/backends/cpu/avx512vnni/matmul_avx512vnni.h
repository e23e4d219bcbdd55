/* SPDX-License-Identifier: MIT
 * The unit of products with vpdpbusd, for the instruction sets that add to it. */
#ifndef QUERN_MATMUL_AVX512VNNI_H
#define QUERN_MATMUL_AVX512VNNI_H

#include "backends/cpu/matmul_drive.h"

struct matmul_unit qrn_matmul_unit_avx512vnni(const struct matmul_job *j);

#endif
