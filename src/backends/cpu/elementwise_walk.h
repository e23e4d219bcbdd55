/* SPDX-License-Identifier: MIT
 * The walk over two inputs and an output of one shape that add, mul, silu_mul and sigmoid_mul
 * share: each variant gives a row's work, QRN_ELEMENTWISE_KERNEL makes the kernel of it. */
#ifndef QUERN_BACKENDS_CPU_ELEMENTWISE_WALK_H
#define QUERN_BACKENDS_CPU_ELEMENTWISE_WALK_H

#include "backends/cpu/cpu.h"
#include "backends/cpu/round_out.h"

/* n elements, contiguous; out may be x or y. */
typedef void (*elementwise_row)(const float *x, const float *y, float *out, int64_t n);

/* Lanes share elements, not rows: one row of a decode step is work for all of them; in whole blocks
 * of what they may be rounded to. */
static inline void elementwise_walk(const struct qrn_cpu_lane *lane, const struct qrn_tensor *x,
                                    const struct qrn_tensor *y, const struct qrn_tensor *out,
                                    elementwise_row row, const struct rounding *rounding)
{
    float piece[ROUND_PIECE];
    const bool rounded = out->dtype != QRN_F32;
    const int64_t d = out->shape[out->n_dims - 1];
    int64_t at, end;
    qrn_cpu_share(lane, qrn_tensor_n_elements(out), QRN_Q8_ACT_BLOCK, &at, &end);
    while (at < end) {
        const int64_t r = at / d, i = at % d;
        int64_t n = d - i < end - at ? d - i : end - at;
        if (rounded && n > ROUND_PIECE) n = ROUND_PIECE;
        row(qrn_row_f32(x, r) + i, qrn_row_f32(y, r) + i,
            rounded ? piece : qrn_row_f32(out, r) + i, n);
        if (rounded) round_out(rounding, piece, out, r, i, n);
        at += n;
    }
}

/* op##_row is an elementwise_row; x_ and y_ are the op's names of its inputs. */
#define QRN_ELEMENTWISE_KERNEL(op_, variant, features, x_, y_)              \
    static void op_##_run(void *lane, const void *args)                     \
    {                                                                       \
        const struct qrn_##op_##_args *a = args;                            \
        elementwise_walk(lane, &a->x_, &a->y_, &a->out, op_##_row, &rounding_##variant); \
    }                                                                       \
    const struct qrn_kernel qrn_cpu_##op_##_##variant = {                   \
        .op = QRN_OP_##op_, .name = "cpu." #op_ "." #variant,               \
        .needs = features, .run = op_##_run,                                \
    };

#endif
