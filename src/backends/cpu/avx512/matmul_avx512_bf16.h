/* SPDX-License-Identifier: MIT
 * The unit of bf16 products of few rows with multiply-adds, for the instruction sets that add to it. */
#ifndef QUERN_MATMUL_AVX512_BF16_H
#define QUERN_MATMUL_AVX512_BF16_H

#include "backends/cpu/matmul_bf16.h"

extern const struct bf16_unit qrn_bf16_unit_avx512;

#endif
