/* SPDX-License-Identifier: MIT
 * Made-up calls: norms, elements, casts. */
#include <inttypes.h>

#include "bench_cases.h"

/* Sizes: rows, d. */

static void rms_norm(struct bench_memory *m, const int64_t *n, struct bench_case *c)
{
    if (!bench_named(m, c, "%" PRId64 "x%" PRId64 " fused residual", n[0], n[1])) return;
    c->args.rms_norm = (struct qrn_rms_norm_args){.x = bench_floats(m, 1.0f, n[0], n[1], 0),
                                                  .residual = bench_floats(m, 1.0f, n[0], n[1], 0),
                                                  .sum = bench_output(m, QRN_F32, n[0], n[1], 0),
                                                  .weight = bench_floats(m, 1.0f, n[1], 0, 0),
                                                  .out = bench_output(m, QRN_F32, n[0], n[1], 0),
                                                  .eps = 1e-6f};
}

static void l2_norm(struct bench_memory *m, const int64_t *n, struct bench_case *c)
{
    if (!bench_named(m, c, "%" PRId64 "x%" PRId64, n[0], n[1])) return;
    c->args.l2_norm = (struct qrn_l2_norm_args){.x = bench_floats(m, 1.0f, n[0], n[1], 0),
                                                .out = bench_output(m, QRN_F32, n[0], n[1], 0),
                                                .eps = 1e-6f};
}

/* The four ops of two inputs have the same layout of arguments. */
#define TWO_INPUTS(op, first, second)                                                          \
    static void op(struct bench_memory *m, const int64_t *n, struct bench_case *c)             \
    {                                                                                          \
        if (!bench_named(m, c, "%" PRId64 "x%" PRId64, n[0], n[1])) return;                    \
        c->args.op = (struct qrn_##op##_args){.first = bench_floats(m, 1.0f, n[0], n[1], 0),   \
                                              .second = bench_floats(m, 1.0f, n[0], n[1], 0),  \
                                              .out = bench_output(m, QRN_F32, n[0], n[1], 0)}; \
    }
TWO_INPUTS(add, x, y)
TWO_INPUTS(mul, x, y)
TWO_INPUTS(silu_mul, gate, up)
TWO_INPUTS(sigmoid_mul, x, gate)

/* type, to type, n */
static void cast(struct bench_memory *m, const int64_t *n, struct bench_case *c)
{
    const enum qrn_dtype from = (enum qrn_dtype)n[0], to = (enum qrn_dtype)n[1];
    if (!bench_named(m, c, "%s to %s %" PRId64, qrn_dtype_info(from)->name,
                     qrn_dtype_info(to)->name, n[2]))
        return;
    c->args.cast = (struct qrn_cast_args){.x = bench_weights(m, from, n[2], 0, 0),
                                          .out = bench_weights(m, to, n[2], 0, 0)};
}

static void copy(struct bench_memory *m, const int64_t *n, struct bench_case *c)
{
    if (!bench_named(m, c, "f32 %" PRId64 "x%" PRId64, n[0], n[1])) return;
    c->args.copy = (struct qrn_copy_args){.x = bench_floats(m, 1.0f, n[0], n[1], 0),
                                          .out = bench_output(m, QRN_F32, n[0], n[1], 0)};
}

#define ROWS_AND_ONE(op) {QRN_OP_##op, op, {1, 4096}}, {QRN_OP_##op, op, {512, 4096}}

const struct bench_row bench_rows_norm[] = {
    ROWS_AND_ONE(rms_norm), ROWS_AND_ONE(l2_norm), ROWS_AND_ONE(add), ROWS_AND_ONE(mul),
    ROWS_AND_ONE(silu_mul), ROWS_AND_ONE(sigmoid_mul), ROWS_AND_ONE(copy),
    {QRN_OP_cast, cast, {QRN_F32, QRN_F16, 1 << 20}},
    {QRN_OP_cast, cast, {QRN_BF16, QRN_F32, 1 << 20}},
    {QRN_OP_cast, cast, {QRN_Q4_0, QRN_F32, 1 << 20}},
    {.build = NULL},
};
