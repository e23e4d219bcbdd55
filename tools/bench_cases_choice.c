/* SPDX-License-Identifier: MIT
 * Made-up calls: experts and tokens. */
#include <inttypes.h>

#include "bench_cases.h"

/* tokens, of k, experts */
static void moe_route(struct bench_memory *m, const int64_t *n, struct bench_case *c)
{
    if (!bench_named(m, c, "T %" PRId64 ", %" PRId64 " of %" PRId64, n[0], n[1], n[2])) return;
    c->args.moe_route =
        (struct qrn_moe_route_args){.logits = bench_floats(m, 4.0f, n[0], n[2], 0),
                                    .ids = bench_ints(m, n[0], n[1]),
                                    .weights = bench_output(m, QRN_F32, n[0], n[1], 0),
                                    .normalise = true};
}

/* tokens, of k, d */
static void moe_combine(struct bench_memory *m, const int64_t *n, struct bench_case *c)
{
    if (!bench_named(m, c, "T %" PRId64 ", %" PRId64 " of d %" PRId64, n[0], n[1], n[2])) return;
    c->args.moe_combine = (struct qrn_moe_combine_args){
        .experts = bench_floats(m, 1.0f, n[0], n[1], n[2]),
        .weights = bench_floats(m, 1.0f, n[0], n[1], 0),
        .shared = bench_floats(m, 1.0f, n[0], n[2], 0),
        .shared_gate = bench_floats(m, 1.0f, n[0], 0, 0),
        .out = bench_output(m, QRN_F32, n[0], n[2], 0),
    };
}

/* rows, n */
static void argmax(struct bench_memory *m, const int64_t *n, struct bench_case *c)
{
    if (!bench_named(m, c, "%" PRId64 "x%" PRId64, n[0], n[1])) return;
    c->args.argmax = (struct qrn_argmax_args){.x = bench_floats(m, 10.0f, n[0], n[1], 0),
                                              .ids = bench_ints(m, n[0], 0)};
}

/* k, n, rows */
static void top_k(struct bench_memory *m, const int64_t *n, struct bench_case *c)
{
    if (!bench_named(m, c, "%" PRId64 " of %" PRId64 " rows %" PRId64, n[0], n[1], n[2])) return;
    c->args.top_k = (struct qrn_top_k_args){.x = bench_floats(m, 10.0f, n[2], n[1], 0),
                                            .ids = bench_ints(m, n[2], n[0])};
}

/* n, top_k */
static void sample(struct bench_memory *m, const int64_t *n, struct bench_case *c)
{
    if (!bench_named(m, c, "%" PRId64 " top_k %" PRId64 " top_p 0.95", n[0], n[1])) return;
    c->args.sample = (struct qrn_sample_args){.logits = bench_floats(m, 10.0f, n[0], 0, 0),
                                              .id = bench_ints(m, 1, 0),
                                              .temperature = 0.8f,
                                              .top_k = (int32_t)n[1],
                                              .top_p = 0.95f,
                                              .seed = 1};
}

#define VOCAB 151936

const struct bench_row bench_rows_choice[] = {
    {QRN_OP_moe_route, moe_route, {1, 8, 256}},
    {QRN_OP_moe_route, moe_route, {512, 8, 256}},
    {QRN_OP_moe_combine, moe_combine, {1, 8, 2048}},
    {QRN_OP_moe_combine, moe_combine, {512, 8, 2048}},
    {QRN_OP_argmax, argmax, {1, VOCAB}},
    {QRN_OP_top_k, top_k, {40, VOCAB, 1}},
    {QRN_OP_sample, sample, {VOCAB, 40}},
    {QRN_OP_sample, sample, {VOCAB, 0}},
    {.build = NULL},
};
