/* SPDX-License-Identifier: MIT
 * The walk over rows that the variants of softmax share: each gives the work on one row. */
#ifndef QUERN_BACKENDS_CPU_SOFTMAX_WALK_H
#define QUERN_BACKENDS_CPU_SOFTMAX_WALK_H

#include "backends/cpu/cpu.h"
#include "backends/cpu/rows.h"

struct softmax_row {
    const float *x;
    const void *mask; /* NULL: none */
    enum qrn_dtype mask_type;
    float *out; /* may be x */
    int64_t n;
    float scale;
};

static inline void softmax_walk(const struct qrn_cpu_lane *lane, const struct qrn_softmax_args *a,
                                void (*row)(const struct softmax_row *))
{
    const int64_t n_mask_rows = a->mask.n_dims ? qrn_n_rows(&a->mask) : 1;
    int64_t begin, end;
    if (qrn_tensor_n_elements(&a->x) == 0) return;
    qrn_cpu_share(lane, qrn_n_rows(&a->x), 1, &begin, &end);
    for (int64_t r = begin; r < end; r++) {
        struct softmax_row one = {
            .x = qrn_row_f32(&a->x, r),
            .out = qrn_row_f32(&a->out, r),
            .mask_type = a->mask.dtype,
            .n = a->x.shape[a->x.n_dims - 1],
            .scale = a->scale,
        };
        if (a->mask.n_dims)
            one.mask = (const char *)a->mask.data +
                       qrn_row_at(&a->mask, r % n_mask_rows) * (a->mask.dtype == QRN_F32 ? 4 : 2);
        row(&one);
    }
}

#endif
