/* SPDX-License-Identifier: MIT
 * The chunk stages of the gated delta rule as one set of calls. */
#include "support/gdn_stages.h"

#include <math.h>
#include <stdlib.h>

#define F32 QRN_F32
#define F64 QRN_F64
#define BF16 QRN_BF16
#define BLOCK QRN_HEADS_BLOCK
#define TILED QRN_HEADS_TILED
const struct stages_case stages_cases[] = {
    {128, 0, 2, 4, 128, 128, F32, F32, BLOCK, STAGES_MILD, "the reference library's size"},
    {150, 0, 1, 2, 64, 96, F32, F64, TILED, STAGES_STRONG, "a tail, strong decay"},
    {200, 4, 1, 2, 48, 32, F32, F64, BLOCK, STAGES_STRONG, "ragged"},
    {70, 0, 1, 1, 20, 7, F32, F32, BLOCK, STAGES_STRONG, "no vector width divides it"},
    {130, 0, 1, 2, 64, 64, F32, F64, BLOCK, STAGES_ABYSS, "one g of -316"},
    {100, 3, 1, 2, 64, 40, BF16, F32, TILED, STAGES_MILD, "bf16"},
    {90, 0, 1, 1, 192, 160, BF16, F64, BLOCK, STAGES_STRONG, "bf16, both above 128"},
    {1, 0, 1, 1, 1, 1, F32, F32, BLOCK, STAGES_MILD, "smallest"},
    {0, 2, 1, 2, 16, 16, F32, F32, BLOCK, STAGES_MILD, "no tokens"},
};
const size_t n_stages_cases = sizeof stages_cases / sizeof *stages_cases;

static struct qrn_tensor filled(struct mem *m, struct rng *r, enum qrn_dtype type, double scale,
                                int64_t n0, int64_t n1, int64_t n2)
{
    const struct qrn_tensor t = mem_tensor(m, type, 3, (const int64_t[]){n0, n1, n2});
    for (int64_t i = 0; i < qrn_tensor_n_elements(&t); i++)
        qrn_ref_set_flat(&t, i, rng_normal(r) * scale);
    return t;
}

static void fill_gates(struct stages *s, struct rng *r, const struct stages_case *c)
{
    for (int64_t i = 0; i < c->n_tokens * c->n_v_heads; i++) {
        double g =
            -rng_uniform(r, 0.0, c->decay == STAGES_STRONG && rng_below(r, 4) == 0 ? 5.0 : 0.1);
        if (c->decay == STAGES_ABYSS && i / c->n_v_heads % QRN_GDN_CHUNK == 5) g = -316.0;
        ((float *)s->g.data)[i] = (float)g;
        ((float *)s->beta.data)[i] = (float)rng_uniform(r, 0.05, 0.95);
    }
}

static void make_args(struct stages *s, struct mem *m, const struct stages_case *c,
                      struct qrn_tensor seq)
{
    const int64_t T = c->n_tokens, H = c->n_v_heads, dk = c->d_k, dv = c->d_v;
    const int64_t n_chunks = qrn_gdn_n_chunks(seq.data, c->n_seqs, T);
    const int64_t gates[] = {T, H}, A[] = {T, H, QRN_GDN_CHUNK}, w[] = {T, H, dk}, v[] = {T, H, dv};
    const int64_t h[] = {n_chunks, H, dv, dk};
    s->cumsum = (struct qrn_gdn_cumsum_args){
        .g = s->g, .seq_begin = seq, .G = mem_tensor(m, c->G_type, 2, gates)};
    s->kkt = (struct qrn_gdn_kkt_args){.k = s->k,
                                       .beta = s->beta,
                                       .G = s->cumsum.G,
                                       .seq_begin = seq,
                                       .A = mem_tensor(m, QRN_F32, 3, A),
                                       .head_map = c->map};
    s->solve = (struct qrn_gdn_solve_args){
        .A = s->kkt.A, .seq_begin = seq, .inverse = mem_tensor(m, QRN_F32, 3, A)};
    s->wu = (struct qrn_gdn_recompute_wu_args){
        .k = s->k, .v = s->v, .beta = s->beta, .G = s->cumsum.G, .inverse = s->solve.inverse,
        .seq_begin = seq, .w = mem_tensor(m, c->type, 3, w), .u = mem_tensor(m, c->type, 3, v),
        .head_map = c->map};
    s->state = (struct qrn_gdn_chunk_state_args){.k = s->k,
                                                 .w = s->wu.w,
                                                 .u = s->wu.u,
                                                 .G = s->cumsum.G,
                                                 .seq_begin = seq,
                                                 .state_in = s->state_in,
                                                 .h = mem_tensor(m, c->type, 4, h),
                                                 .v_new = mem_tensor(m, c->type, 3, v),
                                                 .state_out = s->state_out,
                                                 .head_map = c->map};
    s->chunk_out = (struct qrn_gdn_chunk_out_args){.q = s->q,
                                                   .k = s->k,
                                                   .v_new = s->state.v_new,
                                                   .h = s->state.h,
                                                   .G = s->cumsum.G,
                                                   .seq_begin = seq,
                                                   .out = s->out,
                                                   .scale = 1.5f,
                                                   .head_map = c->map};
}

void stages_make(struct stages *s, struct mem *m, const struct stages_case *c, uint64_t seed)
{
    struct rng r = {seed};
    const int64_t T = c->n_tokens, n_seqs = c->n_seqs ? c->n_seqs : 1;
    const int64_t gates[] = {T, c->n_v_heads}, states[] = {n_seqs, c->n_v_heads, c->d_v, c->d_k};
    const double norm = 1.0 / sqrt((double)c->d_k);
    struct qrn_tensor seq = {0};
    *s = (struct stages){.seq_begin = mem_guarded(m, 8 * sizeof *s->seq_begin),
                         .q = filled(m, &r, c->type, norm, T, c->n_k_heads, c->d_k),
                         .k = filled(m, &r, c->type, norm, T, c->n_k_heads, c->d_k),
                         .v = filled(m, &r, c->type, 1.0, T, c->n_v_heads, c->d_v),
                         .out = filled(m, &r, c->type, 1.0, T, c->n_v_heads, c->d_v),
                         .g = mem_tensor(m, QRN_F32, 2, gates),
                         .beta = mem_tensor(m, QRN_F32, 2, gates),
                         .state_in = mem_filled(m, &r, 0.7, 4, states),
                         .state_out = mem_tensor(m, QRN_F32, 4, states)};
    fill_gates(s, &r, c);
    s->seq_begin[0] = 0;
    for (int64_t i = 1; i <= n_seqs; i++)
        s->seq_begin[i] = i == n_seqs ? (int32_t)T : (int32_t)(T * i * i / (n_seqs * n_seqs));
    if (c->n_seqs) seq = qrn_tensor_1d(QRN_I32, s->seq_begin, n_seqs + 1);
    make_args(s, m, c, seq);
}

void stages_run(struct stages *s, struct qrn_device *dev)
{
    struct qrn_error err;
    if (qrn_gdn_cumsum(dev, &s->cumsum, &err) != QRN_OK ||
        qrn_gdn_kkt(dev, &s->kkt, &err) != QRN_OK ||
        qrn_gdn_solve(dev, &s->solve, &err) != QRN_OK ||
        qrn_gdn_recompute_wu(dev, &s->wu, &err) != QRN_OK ||
        qrn_gdn_chunk_state(dev, &s->state, &err) != QRN_OK ||
        qrn_gdn_chunk_out(dev, &s->chunk_out, &err) != QRN_OK)
        fail_msg("%s", err.text);
}

void stages_test(enum qrn_op_id op, size_t offset, double tolerance_f32, double tolerance_bf16)
{
    struct devices d;
    devices_open_for(&d, 2, op);
    for (size_t i = 0; i < n_stages_cases; i++) {
        const struct stages_case *c = &stages_cases[i];
        struct mem m = {0};
        struct stages s;
        stages_make(&s, &m, c, i);
        stages_run(&s, d.dev[0]);
        const void *args = (const char *)&s + offset;
        for (size_t j = 0; j < d.n; j++)
            op_test_against_reference(d.dev[j], op, args,
                                      c->type == QRN_F32 ? tolerance_f32 : tolerance_bf16, c->why);
        op_test_same_bits(op, args, c->why);
        mem_free_all(&m);
    }
    devices_close(&d);
}
