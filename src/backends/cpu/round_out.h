/* SPDX-License-Identifier: MIT
 * Outputs that are rounded in the pass that makes them: floats wait in a piece of a row, then cast's own
 * steps round them. */
#ifndef QUERN_BACKENDS_CPU_ROUND_OUT_H
#define QUERN_BACKENDS_CPU_ROUND_OUT_H

#include "backends/cpu/rows.h"
#include "formats/q8_act.h"

enum { ROUND_PIECE = 512 }; /* elements; whole blocks */

/* n values to bf16, nearest even; n_blocks blocks of 128 to struct qrn_q8_act. */
struct rounding {
    void (*to_bf16)(const float *src, uint16_t *dst, int64_t n);
    void (*to_q8)(const float *src, struct qrn_q8_act *dst, int64_t n_blocks);
};

/* Elements i .. i + n - 1 of row r of out, which is bf16 or q8_act; i and n in whole blocks. */
static inline void round_out(const struct rounding *rounding, const float *values,
                             const struct qrn_tensor *out, int64_t r, int64_t i, int64_t n)
{
    const int64_t at = qrn_row_at(out, r) + i;
    if (out->dtype == QRN_BF16)
        rounding->to_bf16(values, (uint16_t *)out->data + at, n);
    else
        rounding->to_q8(values, (struct qrn_q8_act *)out->data + at / QRN_Q8_ACT_BLOCK,
                        n / QRN_Q8_ACT_BLOCK);
}

#endif
