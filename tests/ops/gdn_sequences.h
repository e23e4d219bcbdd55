/* SPDX-License-Identifier: MIT
 * Sequences for the tests of gdn_open_chunk: tokens, states and rows that end at guard pages, calls, and the
 * recurrence in float64. */
#ifndef QUERN_TESTS_GDN_SEQUENCES_H
#define QUERN_TESTS_GDN_SEQUENCES_H

#include <math.h>
#include <string.h>

#include "support/op_test.h"

enum { C = QRN_GDN_CHUNK };

struct shape {
    int64_t n_k_heads, n_v_heads, d_k, d_v;
    enum qrn_head_map map;
    const char *why;
};

static const struct shape shapes[] = {
    {2, 4, 128, 128, QRN_HEADS_BLOCK, "the released models' heads"},
    {2, 6, 64, 96, QRN_HEADS_TILED, "tiled map, d_v not a multiple of 64"},
    {1, 1, 1, 1, QRN_HEADS_BLOCK, "smallest"},
    {1, 2, 20, 20, QRN_HEADS_TILED, "no vector width divides 20"},
    {1, 1, 33, 7, QRN_HEADS_BLOCK, "d_v below any vector"},
    {1, 2, 192, 64, QRN_HEADS_BLOCK, "d_k above 128"},
    {1, 1, 48, 145, QRN_HEADS_BLOCK, "d_v above 128, odd"},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

/* The tokens of one sequence, from position 0 on. */
struct tokens {
    const struct shape *z;
    struct qrn_tensor q, k, v, g, beta;
    enum qrn_activation_type acts;
};

enum decay { MILD, STRONG, ABYSS };

static inline void normalise(struct qrn_tensor t)
{
    const int64_t d = t.shape[2], n = t.shape[0] * t.shape[1];
    for (int64_t r = 0; r < n; r++) {
        float *x = (float *)t.data + r * d;
        double sum = 1e-12;
        for (int64_t i = 0; i < d; i++) sum += (double)x[i] * (double)x[i];
        for (int64_t i = 0; i < d; i++) x[i] = (float)((double)x[i] / sqrt(sum));
    }
}

static inline struct tokens make_tokens(struct mem *m, struct rng *r, const struct shape *z,
                                        int64_t T, enum decay decay)
{
    const int64_t keys[] = {T, z->n_k_heads, z->d_k}, values[] = {T, z->n_v_heads, z->d_v};
    struct tokens w = {.z = z,
                       .q = mem_filled(m, r, 1.0, 3, keys),
                       .k = mem_filled(m, r, 1.0, 3, keys),
                       .v = mem_filled(m, r, 1.0, 3, values),
                       .g = mem_tensor(m, QRN_F32, 2, values),
                       .beta = mem_tensor(m, QRN_F32, 2, values)};
    normalise(w.q);
    normalise(w.k);
    for (int64_t i = 0; i < T * z->n_v_heads; i++) {
        const int64_t t = i / z->n_v_heads;
        double g = -rng_uniform(r, 0.0, 0.1);
        if (decay == STRONG && rng_below(r, 4) == 0) g = -rng_uniform(r, 0.0, 5.0);
        if (decay == ABYSS && t % C == 3) g = -316.0;
        ((float *)w.g.data)[i] = (float)g;
        ((float *)w.beta.data)[i] = (float)rng_uniform(r, 0.05, 1.0);
    }
    return w;
}

/* What a model keeps for one sequence. */
struct sequence {
    float *state[2]; /* of chunk c in [c & 1]; both the same: in place */
    void *rows[2];
    int32_t position;
};

static inline size_t state_bytes(const struct shape *z)
{
    return qrn_gdn_state_bytes(z->n_v_heads, z->d_k, z->d_v);
}

static inline size_t rows_bytes(const struct shape *z)
{
    return qrn_gdn_rows_bytes(z->n_k_heads, z->n_v_heads, z->d_k, z->d_v);
}

static inline struct sequence make_sequence(struct mem *m, const struct shape *z, bool in_place)
{
    struct sequence s = {0};
    for (int i = 0; i < 2; i++) {
        s.state[i] = i && in_place ? s.state[0] : mem_guarded(m, state_bytes(z));
        s.rows[i] = i && in_place ? s.rows[0] : mem_guarded(m, rows_bytes(z));
        memset(s.rows[i], 0xff, rows_bytes(z)); /* not a number wherever nothing was written */
    }
    return s;
}

/* S0 of position 0, the same for all with that seed. */
static inline void start(struct sequence *s, const struct shape *z, uint64_t seed)
{
    struct rng r = {seed};
    for (size_t i = 0; i < state_bytes(z) / sizeof(float); i++)
        s->state[0][i] = (float)(rng_normal(&r) * 0.3);
    s->position = 0;
}

enum { MOST_OF_A_CALL = 150 };

struct call {
    uint64_t state[MOST_OF_A_CALL][3], rows[MOST_OF_A_CALL][2];
    int32_t seq_begin[MOST_OF_A_CALL + 1], position[MOST_OF_A_CALL];
    struct qrn_gdn_open_chunk_args args;
};

static inline struct call *make_call(struct mem *m)
{
    struct call *c = mem_guarded(m, sizeof *c);
    memset(c, 0, sizeof *c);
    return c;
}

static inline void call_add(struct call *c, int i, const struct sequence *s, int64_t n)
{
    c->state[i][0] = (uintptr_t)s->state[s->position / C & 1];
    for (int j = 0; j < 2; j++) {
        c->state[i][1 + j] = (uintptr_t)s->state[j];
        c->rows[i][j] = (uintptr_t)s->rows[j];
    }
    c->position[i] = s->position;
    c->seq_begin[i + 1] = c->seq_begin[i] + (int32_t)n;
}

static inline void call_finish(struct call *c, int n_seqs, const struct tokens *w,
                               struct qrn_tensor out)
{
    c->args = (struct qrn_gdn_open_chunk_args){
        .q = w->q,
        .k = w->k,
        .v = w->v,
        .g = w->g,
        .beta = w->beta,
        .out = out,
        .seq_begin = qrn_tensor_1d(QRN_I32, c->seq_begin, n_seqs + 1),
        .position = qrn_tensor_1d(QRN_I32, c->position, n_seqs),
        .state = qrn_tensor_2d(QRN_ADDRESS, c->state, n_seqs, 3),
        .rows = qrn_tensor_2d(QRN_ADDRESS, c->rows, n_seqs, 2),
        .scale = 1.5f,
        .head_map = w->z->map,
        .acts = w->acts};
}

/* A GPU may be an emulated one, a hundred times slower: it has less to do.  Which of its kernels
 * serves depends on the call, so core chooses. */
static inline bool is_gpu(const struct qrn_device *dev)
{
    return !qrn_device_host_reads(dev);
}

static inline void run(struct qrn_device *dev, const struct qrn_kernel *k,
                       const struct qrn_gdn_open_chunk_args *a)
{
    struct qrn_error err;
    const enum qrn_status status = is_gpu(dev) || !k
                                       ? qrn_op_call(dev, QRN_OP_gdn_open_chunk, a, &err)
                                   : qrn_op_check(qrn_op(QRN_OP_gdn_open_chunk), a, &err) != QRN_OK
                                       ? QRN_ERR_ARGUMENT
                                       : qrn_kernel_run(dev, k, a, &err);
    if (status != QRN_OK) fail_msg("%s: %s", k ? k->name : "the device", err.text);
}

/* n tokens of w from position on; out holds all of w's tokens. */
static inline void feed(struct qrn_device *dev, const struct qrn_kernel *k, const struct tokens *w,
                        struct sequence *s, int64_t n, struct qrn_tensor out)
{
    struct mem m = {0};
    struct call *c = make_call(&m);
    struct tokens part = *w;
    struct qrn_tensor *const all[] = {&part.q, &part.k, &part.v, &part.g, &part.beta, &out};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        *all[i] = qrn_tensor_slice(*all[i], 0, s->position, n);
    call_add(c, 0, s, n);
    call_finish(c, 1, &part, out);
    run(dev, k, &c->args);
    s->position += (int32_t)n;
    mem_free_all(&m);
}

static inline void feed_to(struct qrn_device *dev, const struct qrn_kernel *k,
                           const struct tokens *w, struct sequence *s, int64_t end, int64_t split,
                           struct qrn_tensor out)
{
    while (s->position < end) {
        const int64_t left = end - s->position;
        feed(dev, k, w, s, left < split ? left : split, out);
    }
}

/* Open rows that count: those below position. */
static inline void assert_same_rows(const struct shape *z, const struct sequence *a,
                                    const struct sequence *b, const char *what)
{
    const int n = a->position % C, i = a->position / C & 1;
    const double *Ga = a->rows[i], *Gb = b->rows[i];
    const float *ka = (const float *)(Ga + z->n_v_heads * C),
                *kb = (const float *)(Gb + z->n_v_heads * C);
    const float *ua = ka + z->n_k_heads * z->d_k * C, *ub = kb + z->n_k_heads * z->d_k * C;
    bool same = true;
    for (int64_t h = 0; h < z->n_v_heads; h++) {
        same = same && memcmp(Ga + h * C, Gb + h * C, (size_t)n * sizeof *Ga) == 0;
        const size_t bytes = (size_t)(n * z->d_v) * sizeof *ua;
        same = same && memcmp(ua + h * C * z->d_v, ub + h * C * z->d_v, bytes) == 0;
    }
    for (int64_t h = 0; h < z->n_k_heads; h++) {
        const size_t bytes = (size_t)(n * z->d_k) * sizeof *ka;
        same = same && memcmp(ka + h * C * z->d_k, kb + h * C * z->d_k, bytes) == 0;
    }
    if (!same) fail_msg("%s: open rows differ at position %d", what, a->position);
}

static inline void assert_same(const struct shape *z, const struct sequence *a,
                               const struct sequence *b, struct qrn_tensor out_a,
                               struct qrn_tensor out_b, const char *what)
{
    assert_int_equal(a->position, b->position);
    const size_t n = (size_t)(a->position * z->n_v_heads * z->d_v) * sizeof(float);
    if (memcmp(out_a.data, out_b.data, n) != 0) fail_msg("%s: out differs", what);
    const int i = a->position / C & 1;
    const size_t state = (size_t)(z->n_v_heads * z->d_k * z->d_v) * sizeof(float);
    if (memcmp(a->state[i], b->state[i], state) != 0) fail_msg("%s: states differ", what);
    assert_same_rows(z, a, b, what);
}

/* Sequences of random history at odd positions: any S0 and rows will do. */
static inline void fill_rows(struct rng *r, const struct shape *z, struct sequence *s,
                             enum decay decay)
{
    for (int i = 0; i < 2; i++) {
        double *G = s->rows[i], sum = 0.0;
        float *k = (float *)(void *)(G + z->n_v_heads * C), *u = k + z->n_k_heads * z->d_k * C;
        const int n = s->position % C;
        for (int t = 0; t < z->n_v_heads * C; t++) {
            sum = t % C ? sum : 0.0;
            G[t] = t % C < n ? sum -= rng_uniform(r, 0.0, decay == MILD ? 0.1 : 5.0) : (double)NAN;
        }
        for (int64_t t = 0; t < z->n_k_heads * z->d_k * C; t++)
            k[t] = t / z->d_k % C < n ? (float)(rng_normal(r) / sqrt((double)z->d_k)) : NAN;
        for (int64_t t = 0; t < z->n_v_heads * C * z->d_v; t++)
            u[t] = t / z->d_v % C < n ? (float)rng_normal(r) : NAN;
    }
}

/* What kernels take that are made for heads of 128. */
static const struct shape wide_shapes[] = {
    {1, 1, 128, 128, QRN_HEADS_BLOCK, "one head"},
    {1, 5, 128, 128, QRN_HEADS_BLOCK, "more than four value heads of a key head"},
    {2, 4, 128, 128, QRN_HEADS_TILED, "heads tiled"},
    {2, 4, 128, 128, QRN_HEADS_BLOCK, "heads in blocks"},
};
enum { N_WIDE = sizeof wide_shapes / sizeof *wide_shapes };

/* The recurrence in float64 from S0 on: out and S [n_v_heads][d_k][d_v], in place. */
static inline void recurrence(double *S, const struct tokens *w, int64_t T, double scale,
                              double *out)
{
    const struct shape *z = w->z;
    for (int64_t t = 0; t < T; t++)
        for (int64_t h = 0; h < z->n_v_heads; h++) {
            const int64_t kh =
                z->map == QRN_HEADS_TILED ? h % z->n_k_heads : h / (z->n_v_heads / z->n_k_heads);
            const float *q = (const float *)w->q.data + (t * z->n_k_heads + kh) * z->d_k;
            const float *k = (const float *)w->k.data + (t * z->n_k_heads + kh) * z->d_k;
            const double decay = exp((double)((const float *)w->g.data)[t * z->n_v_heads + h]);
            const double beta = (double)((const float *)w->beta.data)[t * z->n_v_heads + h];
            for (int64_t j = 0; j < z->d_v; j++) {
                double *Sj = S + h * z->d_k * z->d_v + j, m = 0.0, o = 0.0;
                for (int64_t i = 0; i < z->d_k; i++) m += (Sj[i * z->d_v] *= decay) * (double)k[i];
                const int64_t at = (t * z->n_v_heads + h) * z->d_v + j;
                const double u = beta * ((double)((const float *)w->v.data)[at] - m);
                for (int64_t i = 0; i < z->d_k; i++)
                    o += (Sj[i * z->d_v] += u * (double)k[i]) * (double)q[i];
                out[at] = scale * o;
            }
        }
}

#endif
