/* SPDX-License-Identifier: MIT
 * matmul and matmul_id of rounded activations with sdot: four products of bytes and their sum to
 * each of four lanes. */
#include "backends/cpu/neon/matmul_dot_neon.h"

INLINE int32x4_t dot16(const struct matmul_form f, int32x4_t sum, const int8x16_t *v, int8x16_t x)
{
    (void)f;
    sum = vdotq_laneq_s32(sum, v[0], x, 0);
    sum = vdotq_laneq_s32(sum, v[1], x, 1);
    sum = vdotq_laneq_s32(sum, v[2], x, 2);
    return vdotq_laneq_s32(sum, v[3], x, 3);
}

#include "backends/cpu/neon/matmul_q8_neon.h"

INLINE void product(const struct matmul_form f, const struct matmul_tile *t)
{
    product_by_rows(f, t, 0, 8);
}

#include "backends/cpu/neon/matmul_q8_neon.inc"

static const char serves[] = "rounded activations: sdot, exact sums";

MATMUL_KERNEL(matmul, neondot, QRN_CPU_NEON | QRN_CPU_DOTPROD);
MATMUL_KERNEL(matmul_id, neondot, QRN_CPU_NEON | QRN_CPU_DOTPROD);
