/* SPDX-License-Identifier: MIT
 * Rounding floats in portable C. */
#ifndef QUERN_ROUND_GENERIC_H
#define QUERN_ROUND_GENERIC_H

#include "backends/cpu/round_out.h"
#include "base/half.h"

static inline void to_bf16(const float *src, uint16_t *dst, int64_t n)
{
    for (int64_t i = 0; i < n; i++) dst[i] = qrn_float_to_bf16(src[i]);
}

static inline void to_q8(const float *src, struct qrn_q8_act *dst, int64_t n_blocks)
{
    for (int64_t b = 0; b < n_blocks; b++)
        qrn_q8_act_block(src + QRN_Q8_ACT_BLOCK * b, QRN_Q8_ACT_BLOCK, dst + b);
}

static const struct rounding rounding_generic = {to_bf16, to_q8};

#endif
