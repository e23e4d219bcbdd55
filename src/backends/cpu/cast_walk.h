/* SPDX-License-Identifier: MIT
 * The walk over rows that the variants of cast share: pieces are decoded to float32, then
 * rounded. */
#ifndef QUERN_BACKENDS_CPU_CAST_WALK_H
#define QUERN_BACKENDS_CPU_CAST_WALK_H

#include "backends/cpu/cpu.h"
#include "backends/cpu/rows.h"
#include "formats/blocks.h"
#include "formats/q8_act.h"

enum { CAST_PIECE = 1024 }; /* elements; whole blocks of every type */

/* n values to 16 bits, nearest even; n_blocks blocks of 128 to struct qrn_q8_act. */
struct cast_steps {
    void (*to_f16)(const float *src, uint16_t *dst, int64_t n);
    void (*to_bf16)(const float *src, uint16_t *dst, int64_t n);
    void (*to_q8)(const float *src, struct qrn_q8_act *dst, int64_t n_blocks);
};

static inline void cast_piece(const struct qrn_cast_args *a, const char *src, char *dst, int64_t n,
                              struct cast_steps steps)
{
    float values[CAST_PIECE];
    const void *from = src;
    if (a->x.dtype != QRN_F32 || a->out.dtype == QRN_F32) {
        float *to = a->out.dtype == QRN_F32 ? (float *)(void *)dst : values;
        qrn_decoder(a->x.dtype)(src, to, (size_t)n);
        from = to;
    }
    if (a->out.dtype == QRN_F16) steps.to_f16(from, (uint16_t *)(void *)dst, n);
    if (a->out.dtype == QRN_BF16) steps.to_bf16(from, (uint16_t *)(void *)dst, n);
    if (a->out.dtype == QRN_Q8_ACT)
        steps.to_q8(from, (struct qrn_q8_act *)(void *)dst, n / QRN_Q8_ACT_BLOCK);
}

static inline void cast_walk(const struct qrn_cpu_lane *lane, const struct qrn_cast_args *a,
                             struct cast_steps steps)
{
    const struct qrn_dtype_info *from = qrn_dtype_info(a->x.dtype),
                                *to = qrn_dtype_info(a->out.dtype);
    const int64_t d = a->out.shape[a->out.n_dims - 1];
    const int64_t pieces = (d + CAST_PIECE - 1) / CAST_PIECE; /* of a row */
    int64_t begin, end;
    qrn_cpu_share(lane, d ? qrn_n_rows(&a->out) * pieces : 0, 1, &begin, &end);
    for (int64_t p = begin; p < end; p++) {
        const int64_t r = p / pieces, i = p % pieces * CAST_PIECE;
        cast_piece(a,
                   (const char *)a->x.data +
                       (qrn_row_at(&a->x, r) + i) / from->block_elements * from->block_bytes,
                   (char *)a->out.data +
                       (qrn_row_at(&a->out, r) + i) / to->block_elements * to->block_bytes,
                   d - i < CAST_PIECE ? d - i : CAST_PIECE, steps);
    }
}

#endif
