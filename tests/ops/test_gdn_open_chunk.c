/* SPDX-License-Identifier: MIT
 * gdn_open_chunk: against the plain recurrence in float64, and one sequence, one set of bits:
 * however it is cut into calls, with any threads, alone or in a batch, and after going back. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "support/op_test.h"
#include "support/sanitized.h"

enum { C = QRN_GDN_CHUNK };

/* Three lanes show sanitizers what two or one would, and test_state has all shapes for them. */
enum { LEAST_THREADS = SANITIZED ? 3 : 1 };

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

static void normalise(struct qrn_tensor t)
{
    const int64_t d = t.shape[2], n = t.shape[0] * t.shape[1];
    for (int64_t r = 0; r < n; r++) {
        float *x = (float *)t.data + r * d;
        double sum = 1e-12;
        for (int64_t i = 0; i < d; i++) sum += (double)x[i] * (double)x[i];
        for (int64_t i = 0; i < d; i++) x[i] = (float)((double)x[i] / sqrt(sum));
    }
}

static struct tokens make_tokens(struct mem *m, struct rng *r, const struct shape *z, int64_t T,
                                 enum decay decay)
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

static size_t state_bytes(const struct shape *z)
{
    return qrn_gdn_state_bytes(z->n_v_heads, z->d_k, z->d_v);
}

static size_t rows_bytes(const struct shape *z)
{
    return qrn_gdn_rows_bytes(z->n_k_heads, z->n_v_heads, z->d_k, z->d_v);
}

static struct sequence make_sequence(struct mem *m, const struct shape *z, bool in_place)
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
static void start(struct sequence *s, const struct shape *z, uint64_t seed)
{
    struct rng r = {seed};
    for (size_t i = 0; i < state_bytes(z) / sizeof(float); i++)
        s->state[0][i] = (float)(rng_normal(&r) * 0.3);
    s->position = 0;
}

struct call {
    uint64_t state[8][3], rows[8][2];
    int32_t seq_begin[9], position[8];
    struct qrn_gdn_open_chunk_args args;
};

static struct call *make_call(struct mem *m)
{
    struct call *c = mem_guarded(m, sizeof *c);
    memset(c, 0, sizeof *c);
    return c;
}

static void call_add(struct call *c, int i, const struct sequence *s, int64_t n)
{
    c->state[i][0] = (uintptr_t)s->state[s->position / C & 1];
    for (int j = 0; j < 2; j++) {
        c->state[i][1 + j] = (uintptr_t)s->state[j];
        c->rows[i][j] = (uintptr_t)s->rows[j];
    }
    c->position[i] = s->position;
    c->seq_begin[i + 1] = c->seq_begin[i] + (int32_t)n;
}

static void call_finish(struct call *c, int n_seqs, const struct tokens *w, struct qrn_tensor out)
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
static bool is_gpu(const struct qrn_device *dev)
{
    return !qrn_device_host_reads(dev);
}

static void run(struct qrn_device *dev, const struct qrn_kernel *k,
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
static void feed(struct qrn_device *dev, const struct qrn_kernel *k, const struct tokens *w,
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

static void feed_to(struct qrn_device *dev, const struct qrn_kernel *k, const struct tokens *w,
                    struct sequence *s, int64_t end, int64_t split, struct qrn_tensor out)
{
    while (s->position < end) {
        const int64_t left = end - s->position;
        feed(dev, k, w, s, left < split ? left : split, out);
    }
}

/* Open rows that count: those below position. */
static void assert_same_rows(const struct shape *z, const struct sequence *a,
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
    for (int64_t row = 0; row < z->n_k_heads * z->d_k; row++)
        same = same && memcmp(ka + row * C, kb + row * C, (size_t)n * sizeof *ka) == 0;
    if (!same) fail_msg("%s: open rows differ at position %d", what, a->position);
}

static void assert_same(const struct shape *z, const struct sequence *a, const struct sequence *b,
                        struct qrn_tensor out_a, struct qrn_tensor out_b, const char *what)
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
static void fill_rows(struct rng *r, const struct shape *z, struct sequence *s, enum decay decay)
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
            k[t] = t % C < n ? (float)(rng_normal(r) / sqrt((double)z->d_k)) : NAN;
        for (int64_t t = 0; t < z->n_v_heads * C * z->d_v; t++)
            u[t] = t / z->d_v % C < n ? (float)rng_normal(r) : NAN;
    }
}

static void test_reference(void **state)
{
    static const int32_t positions[] = {0, 62, 64, 127, 300};
    static const int64_t lengths[] = {1, 3, 0, 65, 5};
    (void)state;
    struct devices d;
    devices_open_for(&d, 2, QRN_OP_gdn_open_chunk);
    for (size_t i = 0; i < N_SHAPES * 2; i++) {
        const struct shape *z = &shapes[i % N_SHAPES];
        const enum decay decay = i < N_SHAPES ? MILD : STRONG;
        struct mem m = {0};
        struct rng r = {i + 1};
        struct call *c = make_call(&m);
        const struct tokens w = make_tokens(&m, &r, z, 74, decay);
        const int64_t shape[] = {74, z->n_v_heads, z->d_v};
        for (int s = 0; s < 5; s++) {
            struct sequence q = make_sequence(&m, z, false), start_of = make_sequence(&m, z, false);
            start(&start_of, z, i * 10 + (uint64_t)s);
            q.position = positions[s];
            fill_rows(&r, z, &q, decay);
            call_add(c, s, &q, lengths[s]);
            c->state[s][0] = (uintptr_t)start_of.state[0]; /* apart: every run begins alike */
        }
        call_finish(c, 5, &w, mem_tensor(&m, QRN_F32, 3, shape));
        for (size_t j = 0; j < d.n; j++)
            op_test_against_reference(d.dev[j], QRN_OP_gdn_open_chunk, &c->args, 1e-5, z->why);
        op_test_same_bits(QRN_OP_gdn_open_chunk, &c->args, z->why);
        mem_free_all(&m);
    }
    devices_close(&d);
}

/* The recurrence in float64 from S0 on: out and S [n_v_heads][d_k][d_v], in place. */
static void recurrence(double *S, const struct tokens *w, int64_t T, double scale, double *out)
{
    const struct shape *z = w->z;
    for (int64_t t = 0; t < T; t++)
        for (int64_t h = 0; h < z->n_v_heads; h++) {
            const int64_t kh = z->map == QRN_HEADS_TILED ? h % z->n_k_heads
                                                         : h / (z->n_v_heads / z->n_k_heads);
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

static double error_of(const float *got, const double *want, int64_t n)
{
    double worst = 0.0, squares = 0.0;
    for (int64_t i = 0; i < n; i++) {
        const double e = fabs((double)got[i] - want[i]);
        if (!(e <= worst)) worst = e;
        squares += want[i] * want[i];
    }
    return worst / sqrt(squares / (double)n);
}

/* 200 tokens from S0 to a state three edges on, against float64. */
static void test_state(void **state)
{
    enum { T = 200, EDGE = 192 };
    (void)state;
    struct devices d;
    devices_open_for(&d, 2, QRN_OP_gdn_open_chunk); /* the first has the kernels of all */
    for (size_t i = 0; i < N_SHAPES * 3; i++) {
        const struct shape *z = &shapes[i % N_SHAPES];
        struct mem m = {0};
        struct rng r = {i + 31};
        const struct tokens w = make_tokens(&m, &r, z, T, (enum decay)(i / N_SHAPES));
        const int64_t shape[] = {T, z->n_v_heads, z->d_v};
        const int64_t n_out = T * z->n_v_heads * z->d_v, n_state = z->n_v_heads * z->d_k * z->d_v;
        struct sequence s = make_sequence(&m, z, true);
        struct qrn_tensor out = mem_tensor(&m, QRN_F32, 3, shape);
        double *S = calloc((size_t)(n_state + n_out), sizeof *S), *want = S + n_state;
        start(&s, z, i);
        for (int64_t j = 0; j < n_state; j++) S[j] = (double)s.state[0][j];
        recurrence(S, &w, EDGE, 1.5, want);
        struct qrn_device *const last = d.dev[d.n - 1];
        const struct qrn_kernel *k;
        for (size_t n = 0;; n++) {
            struct qrn_device *dev = d.dev[0];
            k = qrn_kernel_at(dev, QRN_OP_gdn_open_chunk, n);
            if (!k && is_gpu(last) && i % N_SHAPES) {
                dev = last;
                k = qrn_kernel_at(dev, QRN_OP_gdn_open_chunk, 0);
            }
            if (!k) break;
            start(&s, z, i);
            feed(dev, k, &w, &s, T, out);
            const double e_out = error_of(out.data, want, EDGE * z->n_v_heads * z->d_v);
            const double e_state = error_of(s.state[0], S, n_state);
            if (!(e_out <= 1e-5 && e_state <= 1e-5))
                fail_msg("%s, %s, decay %zu: out %.3g, state %.3g of the rms, 1e-5 allowed",
                         k->name, z->why, i / N_SHAPES, e_out, e_state);
            if (is_gpu(dev)) break;
        }
        free(S);
        mem_free_all(&m);
    }
    devices_close(&d);
}

static void each_kernel(int n_threads, void (*test)(struct qrn_device *, const struct qrn_kernel *))
{
    struct devices d;
    if (n_threads == 2) /* a GPU does not care */
        devices_open_for(&d, n_threads, QRN_OP_gdn_open_chunk);
    else
        devices_open(&d, n_threads);
    for (size_t j = 0; j < d.n; j++) { /* a device's own are those that the one before it had not */
        const struct qrn_kernel *k = qrn_kernel_at(d.dev[j], QRN_OP_gdn_open_chunk, 0);
        if (j == 0 || k != qrn_kernel_at(d.dev[j - 1], QRN_OP_gdn_open_chunk, 0)) test(d.dev[j], k);
    }
    devices_close(&d);
}

/* However a sequence is cut; memory in place and apart. */
static void splits(struct qrn_device *dev, const struct qrn_kernel *k)
{
    enum { MOST = 300 };
    static const int64_t sizes[] = {1, 2, 3, 7, 63, 64, 65, 200, 300};
    static const int64_t gpu_sizes[] = {3, 65, 140};
    const bool gpu = is_gpu(dev);
    const int64_t T = gpu ? 140 : MOST, *size = gpu ? gpu_sizes : sizes;
    const size_t n_sizes = gpu ? 3 : sizeof sizes / sizeof *sizes;
    const bool alone =
        qrn_device_n_threads(dev) == 1; /* more threads than cores: slow, so less of it */
    for (size_t i = gpu ? 1 : 0; i < (alone || gpu ? N_SHAPES : 2); i++) {
        const struct shape *z = &shapes[i];
        struct mem m = {0};
        struct rng r = {i + 77};
        const struct tokens w = make_tokens(&m, &r, z, T, STRONG);
        const int64_t shape[] = {T, z->n_v_heads, z->d_v};
        struct sequence one = make_sequence(&m, z, false), other[2];
        struct qrn_tensor out = mem_tensor(&m, QRN_F32, 3, shape),
                          got = mem_tensor(&m, QRN_F32, 3, shape);
        other[0] = make_sequence(&m, z, true);
        other[1] = make_sequence(&m, z, false);
        start(&one, z, i);
        feed_to(dev, k, &w, &one, T, 1, out);
        for (size_t j = alone || gpu ? 0 : 4; j < 2 * n_sizes; j++) {
            struct sequence *s = &other[j & 1];
            start(s, z, i);
            memset(got.data, 0xff, got.n_bytes);
            feed_to(dev, k, &w, s, T, size[j / 2], got);
            assert_same(z, &one, s, out, got, k->name);
        }
        mem_free_all(&m);
    }
}

static void test_splits(void **state)
{
    (void)state;
    for (int n_threads = LEAST_THREADS; n_threads <= 3; n_threads++) each_kernel(n_threads, splits);
}

/* Five sequences that stand at different places, in one call and alone. */
static void batch(struct qrn_device *dev, const struct qrn_kernel *k)
{
    enum { N = 5, TOTAL = 1 + 3 + 64 + 65 + 200 };
    static const int64_t positions[N] = {0, 62, 64, 127, 300}, lengths[N] = {1, 3, 64, 65, 200};
    for (size_t i = is_gpu(dev) ? 1 : 0; i < (qrn_device_n_threads(dev) == 1 ? 4 : 2); i++) {
        const struct shape *z = &shapes[i];
        struct mem m = {0};
        struct rng r = {i + 55};
        struct call *c = make_call(&m);
        struct sequence alone[N], together[N];
        struct qrn_tensor out[N];
        struct tokens w[N], all = make_tokens(&m, &r, z, TOTAL, STRONG);
        const int64_t row = z->n_v_heads * z->d_v;
        struct qrn_tensor out_all =
            mem_tensor(&m, QRN_F32, 3, (const int64_t[]){TOTAL, z->n_v_heads, z->d_v});
        for (int s = 0; s < N; s++) {
            const int64_t T = positions[s] + lengths[s], at = c->seq_begin[s];
            w[s] = make_tokens(&m, &r, z, T, STRONG);
            out[s] = mem_tensor(&m, QRN_F32, 3, (const int64_t[]){T, z->n_v_heads, z->d_v});
            struct qrn_tensor *const from[] = {&all.q, &all.k, &all.v, &all.g, &all.beta};
            struct qrn_tensor *const to[] = {&w[s].q, &w[s].k, &w[s].v, &w[s].g, &w[s].beta};
            for (int j = 0; j < 5; j++) /* the last tokens of w are those of the batch */
                memcpy((float *)to[j]->data + positions[s] * to[j]->stride[0],
                       (float *)from[j]->data + at * from[j]->stride[0],
                       (size_t)(lengths[s] * to[j]->stride[0]) * sizeof(float));
            alone[s] = make_sequence(&m, z, s & 1);
            together[s] = make_sequence(&m, z, s & 1);
            start(&alone[s], z, (uint64_t)s);
            start(&together[s], z, (uint64_t)s);
            feed_to(dev, k, &w[s], &together[s], positions[s], 50, out[s]);
            feed_to(dev, k, &w[s], &alone[s], T, 1, out[s]);
            call_add(c, s, &together[s], lengths[s]);
        }
        call_finish(c, N, &all, out_all);
        run(dev, k, &c->args);
        for (int s = 0; s < N; s++) {
            together[s].position += (int32_t)lengths[s];
            const struct qrn_tensor got = qrn_tensor_slice(out_all, 0, c->seq_begin[s], lengths[s]);
            if (memcmp(got.data, (float *)out[s].data + positions[s] * row,
                       (size_t)(lengths[s] * row) * sizeof(float)) != 0)
                fail_msg("%s, %s: sequence %d differs in a batch", k->name, z->why, s);
            assert_same_rows(z, &alone[s], &together[s], k->name);
        }
        mem_free_all(&m);
    }
}

static void test_batch(void **state)
{
    (void)state;
    for (int n_threads = LEAST_THREADS; n_threads <= 3; n_threads++) each_kernel(n_threads, batch);
}

/* No more tokens than sequences, yet one sequence goes over an edge; memory in place. */
static void uneven(struct qrn_device *dev, const struct qrn_kernel *k)
{
    enum { T = 67, FROM = 62, N = 6 };
    for (size_t i = 1; i < 4; i++) {
        const struct shape *z = &shapes[i];
        struct mem m = {0};
        struct rng r = {i + 7};
        const struct tokens w = make_tokens(&m, &r, z, T, STRONG);
        const int64_t shape[] = {T, z->n_v_heads, z->d_v};
        struct qrn_tensor out = mem_tensor(&m, QRN_F32, 3, shape),
                          got = mem_tensor(&m, QRN_F32, 3, shape);
        struct sequence straight = make_sequence(&m, z, true), s = make_sequence(&m, z, true);
        struct call *c = make_call(&m);
        struct tokens part = w;
        start(&straight, z, i);
        start(&s, z, i);
        feed_to(dev, k, &w, &straight, T, 1, out);
        feed_to(dev, k, &w, &s, FROM, 9, got);
        struct qrn_tensor to = got, *const all[] = {&part.q, &part.k,    &part.v,
                                                    &part.g, &part.beta, &to};
        for (size_t j = 0; j < sizeof all / sizeof *all; j++)
            *all[j] = qrn_tensor_slice(*all[j], 0, FROM, T - FROM);
        for (int j = 0; j < N; j++) call_add(c, j, &s, j == 2 ? T - FROM : 0);
        call_finish(c, N, &part, to);
        run(dev, k, &c->args);
        s.position = T;
        assert_same(z, &straight, &s, out, got, k->name);
        mem_free_all(&m);
    }
}

static void test_uneven(void **state)
{
    (void)state;
    each_kernel(2, uneven);
}

/* Going back: other tokens are tried from a position on, then dropped. */
static void rollback(struct qrn_device *dev, const struct qrn_kernel *k)
{
    static const struct {
        int32_t keep, tried; /* positions */
    } cases[] = {{20, 21}, {20, 63},  {63, 64},   {60, 70},
                 {1, 65},  {64, 100}, {100, 160}, {127, 128}};
    enum { T = 200 };
    const struct shape *z = &shapes[is_gpu(dev) ? 3 : 0];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mem m = {0};
        struct rng r = {i + 5};
        const struct tokens w = make_tokens(&m, &r, z, T, STRONG);
        struct tokens wrong = make_tokens(&m, &r, z, T, STRONG);
        const int64_t shape[] = {T, z->n_v_heads, z->d_v};
        struct qrn_tensor out = mem_tensor(&m, QRN_F32, 3, shape),
                          got = mem_tensor(&m, QRN_F32, 3, shape),
                          none = mem_tensor(&m, QRN_F32, 3, shape);
        struct sequence straight = make_sequence(&m, z, true), s = make_sequence(&m, z, false);
        start(&straight, z, i);
        start(&s, z, i);
        feed_to(dev, k, &w, &straight, T, 64, out);
        feed_to(dev, k, &w, &s, cases[i].keep, 5, got);
        feed_to(dev, k, &wrong, &s, cases[i].tried, 7, none);
        s.position =
            cases[i].keep; /* over an edge: the old state and rows are in the other slots */
        feed_to(dev, k, &w, &s, T, 11, got);
        assert_same(z, &straight, &s, out, got, k->name);
        mem_free_all(&m);
    }
}

static void test_rollback(void **state)
{
    (void)state;
    each_kernel(2, rollback);
}

/* The state that is read is not written when the next lies elsewhere, nor rows of a full chunk
 * after. */
static void untouched(struct qrn_device *dev, const struct qrn_kernel *k)
{
    const struct shape *z = &shapes[1];
    struct mem m = {0};
    struct rng r = {9};
    const struct tokens w = make_tokens(&m, &r, z, 100, MILD);
    struct sequence s = make_sequence(&m, z, false);
    struct qrn_tensor out =
        mem_tensor(&m, QRN_F32, 3, (const int64_t[]){100, z->n_v_heads, z->d_v});
    void *state = malloc(state_bytes(z)), *rows = malloc(rows_bytes(z));
    start(&s, z, 1);
    memcpy(state, s.state[0], state_bytes(z));
    feed(dev, k, &w, &s, 64, out);
    memcpy(rows, s.rows[0], rows_bytes(z));
    feed(dev, k, &w, &s, 36, out);
    assert_memory_equal(state, s.state[0], state_bytes(z));
    assert_memory_equal(rows, s.rows[0], rows_bytes(z));
    free(state);
    free(rows);
    mem_free_all(&m);
}

static void test_untouched(void **state)
{
    (void)state;
    each_kernel(2, untouched);
}

/* Views into one row of a fused projection; offsets of a layer. */
static void test_strided(void **state)
{
    (void)state;
    const struct shape *z = &shapes[1];
    enum { T = 70 };
    struct devices d;
    struct mem m = {0};
    struct rng r = {17};
    struct call *c = make_call(&m);
    devices_open_for(&d, 2, QRN_OP_gdn_open_chunk);
    const int64_t K = z->n_k_heads * z->d_k, V = z->n_v_heads * z->d_v, H = z->n_v_heads;
    struct tokens w = make_tokens(&m, &r, z, T, MILD);
    const struct qrn_tensor wide = mem_filled(&m, &r, 0.1, 2, (const int64_t[]){T, 2 * K + V + 3});
    const struct qrn_tensor gates = mem_filled(&m, &r, 0.0, 2, (const int64_t[]){T, 2 * H + 1});
    for (int64_t i = 0; i < T * (2 * H + 1); i++)
        ((float *)gates.data)[i] = (i & 1) ? -0.25f : -0.125f;
    const struct qrn_tensor out = mem_filled(&m, &r, 1.0, 2, (const int64_t[]){T, V + 8});
    w.q = qrn_tensor_split_last(qrn_tensor_slice(wide, 1, 0, K), z->n_k_heads, z->d_k);
    w.k = qrn_tensor_split_last(qrn_tensor_slice(wide, 1, K, K), z->n_k_heads, z->d_k);
    w.v = qrn_tensor_split_last(qrn_tensor_slice(wide, 1, 2 * K, V), H, z->d_v);
    w.g = qrn_tensor_slice(gates, 1, 0, H);
    w.beta = qrn_tensor_slice(gates, 1, H, H);
    struct sequence s = make_sequence(&m, z, false), from = make_sequence(&m, z, false);
    start(&from, z, 3);
    call_add(c, 0, &s, T);
    c->state[0][0] = (uintptr_t)from.state[0];
    for (int i = 0; i < 3; i++) c->state[0][i] -= 4096;
    for (int i = 0; i < 2; i++) c->rows[0][i] -= 128;
    call_finish(c, 1, &w, qrn_tensor_split_last(qrn_tensor_slice(out, 1, 5, V), H, z->d_v));
    c->args.state_offset = 4096;
    c->args.rows_offset = 128;
    for (size_t j = 0; j < d.n; j++)
        op_test_against_reference(d.dev[j], QRN_OP_gdn_open_chunk, &c->args, 1e-5, "strided");
    devices_close(&d);
    mem_free_all(&m);
}

/* --- operands rounded to bf16 --- */

static const struct shape rounded_shapes[] = {
    {1, 1, 128, 128, QRN_HEADS_BLOCK, "one head"},
    {1, 5, 128, 128, QRN_HEADS_BLOCK, "more than four value heads of a key head"},
    {2, 4, 128, 128, QRN_HEADS_TILED, "heads tiled"},
    {2, 4, 128, 128, QRN_HEADS_BLOCK, "heads in blocks"},
};
enum { N_ROUNDED = sizeof rounded_shapes / sizeof *rounded_shapes };

/* Numbers that bf16 has, as f32 or as bf16. */
static void round_tokens(struct mem *m, struct tokens *w, enum qrn_dtype dtype)
{
    struct qrn_tensor *const all[] = {&w->q, &w->k, &w->v};
    for (int i = 0; i < 3; i++) {
        const struct qrn_tensor t = mem_tensor(m, dtype, 3, all[i]->shape);
        for (int64_t j = 0; j < qrn_tensor_n_elements(&t); j++) {
            const uint16_t h = qrn_float_to_bf16(((const float *)all[i]->data)[j]);
            if (dtype == QRN_BF16)
                ((uint16_t *)t.data)[j] = h;
            else
                ((float *)t.data)[j] = qrn_bf16_to_float(h);
        }
        *all[i] = t;
    }
    w->acts = QRN_ACT_BF16;
}

/* By norms. */
static double norm_error(const struct qrn_tensor *got, const double *want, int64_t n)
{
    double errors = 0.0, squares = 0.0;
    for (int64_t i = 0; i < n; i++) {
        const double x = got->dtype == QRN_F32
                             ? (double)((const float *)got->data)[i]
                             : (double)qrn_bf16_to_float(((const uint16_t *)got->data)[i]);
        errors += (x - want[i]) * (x - want[i]);
        squares += want[i] * want[i];
    }
    return sqrt(errors / squares);
}

/* A sequence to a state three edges on, cut in several ways: chunks begin and end within calls. */
static void rounded_sequence(struct qrn_device *dev, const struct shape *z, enum decay decay,
                             enum qrn_dtype dtype)
{
    enum { T = 203, EDGE = 192 };
    static const int64_t cuts[] = {T, 70};
    struct mem m = {0};
    struct rng r = {91};
    struct tokens w = make_tokens(&m, &r, z, T, decay), exact = w;
    const int64_t shape[] = {T, z->n_v_heads, z->d_v};
    const int64_t n_out = T * z->n_v_heads * z->d_v, n_state = z->n_v_heads * z->d_k * z->d_v;
    struct qrn_tensor out = mem_tensor(&m, dtype, 3, shape);
    double *S = calloc((size_t)(n_state + n_out), sizeof *S), *want = S + n_state;
    round_tokens(&m, &exact, QRN_F32);
    round_tokens(&m, &w, dtype);
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        struct sequence s = make_sequence(&m, z, i & 1);
        start(&s, z, 3);
        for (int64_t j = 0; j < n_state; j++) S[j] = (double)s.state[0][j];
        recurrence(S, &exact, EDGE, 1.5, want);
        memset(out.data, 0xff, out.n_bytes);
        feed_to(dev, NULL, &w, &s, T, cuts[i], out);
        const struct qrn_tensor state = {.data = s.state[EDGE / C & 1], .dtype = QRN_F32};
        const double e_out = norm_error(&out, want, EDGE * z->n_v_heads * z->d_v),
                     e_state = norm_error(&state, S, n_state);
        if (!(e_out <= 6e-3 && e_state <= 6e-3))
            fail_msg("%s, %s, decay %d, calls of %" PRId64 ": out %.3g, state %.3g, 6e-3 allowed",
                     z->why, qrn_dtype_info(dtype)->name, (int)decay, cuts[i], e_out, e_state);
        recurrence(S,
                   &(struct tokens){.z = z,
                                    .q = qrn_tensor_slice(exact.q, 0, EDGE, T - EDGE),
                                    .k = qrn_tensor_slice(exact.k, 0, EDGE, T - EDGE),
                                    .v = qrn_tensor_slice(exact.v, 0, EDGE, T - EDGE),
                                    .g = qrn_tensor_slice(exact.g, 0, EDGE, T - EDGE),
                                    .beta = qrn_tensor_slice(exact.beta, 0, EDGE, T - EDGE)},
                   T - EDGE, 1.5, want);
        const struct qrn_tensor rest = qrn_tensor_slice(out, 0, EDGE, T - EDGE);
        const double e_rest = norm_error(&rest, want, (T - EDGE) * z->n_v_heads * z->d_v);
        if (!(e_rest <= 8e-3))
            fail_msg("%s, %s, calls of %" PRId64 ": behind the last edge %.3g", z->why,
                     qrn_dtype_info(dtype)->name, cuts[i], e_rest);
    }
    free(S);
    mem_free_all(&m);
}

/* One head, so long that parts of it are worked on at once; from an open chunk on, memory in
 * place. */
static void test_rounded_parts(void **state)
{
    enum { FROM = 40, EDGE = 66 * C, T = EDGE + 10 };
    (void)state;
    const struct shape *z = &rounded_shapes[0];
    struct devices d;
    struct mem m = {0};
    struct rng r = {13};
    setenv("QRN_EMULATED_MULTIPROCESSORS", "12", 1); /* an emulated device has few: 4 parts */
    devices_open_for(&d, 1, QRN_OP_gdn_open_chunk);
    unsetenv("QRN_EMULATED_MULTIPROCESSORS");
    struct qrn_device *dev = d.dev[d.n - 1];
    struct tokens w = make_tokens(&m, &r, z, T, MILD), exact = w;
    for (int64_t i = 0; i < T; i++) { /* little is forgotten: parts count in those after them */
        ((float *)w.g.data)[i] *= 0.004f;
        ((float *)w.beta.data)[i] *= 0.1f;
    }
    round_tokens(&m, &exact, QRN_F32);
    round_tokens(&m, &w, is_gpu(dev) ? QRN_BF16 : QRN_F32);
    const int64_t n_out = EDGE * z->d_v, n_state = z->d_k * z->d_v;
    struct qrn_tensor out = mem_tensor(&m, w.q.dtype, 3, (const int64_t[]){T, 1, z->d_v});
    struct sequence s = make_sequence(&m, z, true);
    double *S = calloc((size_t)(n_state + n_out), sizeof *S), *want = S + n_state;
    start(&s, z, 5);
    for (int64_t j = 0; j < n_state; j++) S[j] = (double)s.state[0][j];
    recurrence(S, &exact, EDGE, 1.5, want);
    feed(dev, NULL, &w, &s, FROM, out);
    feed(dev, NULL, &w, &s, T - FROM, out);
    const struct qrn_tensor after = {.data = s.state[EDGE / C & 1], .dtype = QRN_F32};
    const double e_out = norm_error(&out, want, n_out), e_state = norm_error(&after, S, n_state);
    if (!(e_out <= 8e-3 && e_state <= 8e-3))
        fail_msg("parts: out %.3g, state %.3g of the norm, 8e-3 allowed", e_out, e_state);
    free(S);
    devices_close(&d);
    mem_free_all(&m);
}

static void test_rounded_sequence(void **state)
{
    (void)state;
    struct devices d;
    devices_open_for(&d, 1, QRN_OP_gdn_open_chunk);
    struct qrn_device *dev = d.dev[d.n - 1];
    for (size_t i = 0; i < N_ROUNDED; i++) {
        const enum decay decay = i == 1 ? STRONG : i == 2 ? ABYSS : MILD;
        if (i % 3 == 0) rounded_sequence(dev, &rounded_shapes[i], decay, QRN_F32);
        if (i < 3 && is_gpu(dev)) rounded_sequence(dev, &rounded_shapes[i], decay, QRN_BF16);
    }
    devices_close(&d);
}

/* Sequences at all kinds of places in one call, the bytes around out, the same bits again; and what
 * stands in one of them stays there. */
static void rounded_batch(struct qrn_device *dev, const struct shape *z, enum qrn_dtype dtype)
{
    enum { N = 6, TOTAL = 1 + 3 + 65 + 130 + 2, WILD = 3 };
    static const int32_t positions[N] = {0, 62, 64, 127, 256, 63}; /* open rows of a run stay */
    static const int64_t lengths[N] = {1, 3, 0, 65, 130, 2};
    struct mem m = {0};
    struct rng r = {17};
    struct call *c = make_call(&m);
    struct tokens w = make_tokens(&m, &r, z, TOTAL, STRONG);
    round_tokens(&m, &w, dtype);
    for (int s = 0; s < N; s++) {
        struct sequence q = make_sequence(&m, z, false), start_of = make_sequence(&m, z, false);
        start(&start_of, z, (uint64_t)s);
        q.position = positions[s];
        fill_rows(&r, z, &q, STRONG);
        call_add(c, s, &q, lengths[s]);
        c->state[s][0] = (uintptr_t)start_of.state[0]; /* apart: every run begins alike */
    }
    const struct qrn_tensor wide =
        mem_tensor(&m, dtype, 3, (const int64_t[]){TOTAL, z->n_v_heads + 1, z->d_v});
    call_finish(c, N, &w, qrn_tensor_slice(wide, 1, 0, z->n_v_heads));
    /* rows of random keys and u: some tokens are far above the mean */
    op_test_against_reference(dev, QRN_OP_gdn_open_chunk, &c->args, 6e-2, z->why);
    if (dtype == QRN_F32) op_test_same_bits(QRN_OP_gdn_open_chunk, &c->args, z->why);
    run(dev, NULL, &c->args);
    char *before = malloc(wide.n_bytes);
    memcpy(before, wide.data, wide.n_bytes);
    const size_t value = (size_t)w.v.stride[0] * (dtype == QRN_F32 ? 4 : 2);
    memset((char *)w.v.data + value * (size_t)c->seq_begin[WILD], 0xff,
           value * (size_t)lengths[WILD]);
    run(dev, NULL, &c->args);
    const size_t row = (size_t)wide.stride[0] * (dtype == QRN_F32 ? 4 : 2);
    for (int s = 0; s < N; s++)
        if (s != WILD)
            assert_memory_equal(before + row * (size_t)c->seq_begin[s],
                                (char *)wide.data + row * (size_t)c->seq_begin[s],
                                row * (size_t)lengths[s]);
    free(before);
    mem_free_all(&m);
}

static void test_rounded_batch(void **state)
{
    (void)state;
    struct devices d;
    devices_open_for(&d, 1, QRN_OP_gdn_open_chunk);
    struct qrn_device *dev = d.dev[d.n - 1];
    for (size_t i = 0; i < 2 && is_gpu(dev); i++)
        rounded_batch(dev, &rounded_shapes[2 * i], i ? QRN_BF16 : QRN_F32);
    devices_close(&d);
}

/* --- one token each --- */

/* Copies rows of tokens: n of w from `from` on to all from `at` on. */
static void copy_tokens(const struct tokens *all, int64_t at, const struct tokens *w, int64_t from,
                        int64_t n)
{
    const struct qrn_tensor *const to[] = {&all->q, &all->k, &all->v, &all->g, &all->beta};
    const struct qrn_tensor *const of[] = {&w->q, &w->k, &w->v, &w->g, &w->beta};
    for (int i = 0; i < 5; i++)
        memcpy((float *)to[i]->data + at * to[i]->stride[0],
               (float *)of[i]->data + from * of[i]->stride[0],
               (size_t)(n * of[i]->stride[0]) * sizeof(float));
}

/* A sequence at position, the same for the same seed. */
static struct sequence stand_at(struct mem *m, const struct shape *z, int32_t position,
                                uint64_t seed, bool aligned)
{
    struct sequence s = make_sequence(m, z, false);
    struct rng r = {seed};
    for (int i = 0; i < 2 && !aligned; i++)
        s.state[i] = (float *)mem_guarded(m, state_bytes(z) + 16) + 2;
    start(&s, z, seed);
    memcpy(s.state[1], s.state[0], state_bytes(z));
    s.position = position;
    fill_rows(&r, z, &s, MILD);
    return s;
}

/* Many sequences of a token each, at all kinds of places: as each of them alone.  In other calls than
 * the first there are others among them, over an edge and at odd addresses.  The last have one head,
 * which alone is few enough for a GPU to have them cut. */
static void one_token_each(struct qrn_device *dev, const struct qrn_kernel *k)
{
    enum { N = 7, T = 128, ODD = 4 };
    static const int32_t positions[N] = {0, 31, 63, 32, 63, 100, 62};
    static const int64_t lengths[2][N] = {{1, 1, 1, 1, 1, 1, 1}, {1, 0, 2, 1, 1, 1, 1}};
    for (int i = 0; i < 3; i++) {
        const struct shape *z = &rounded_shapes[i < 2 ? 2 + i : 0];
        struct mem m = {0};
        struct rng r = {(uint64_t)i + 3};
        struct call *c = make_call(&m);
        struct sequence alone[N], together[N];
        const struct tokens w = make_tokens(&m, &r, z, T, MILD),
                            all = make_tokens(&m, &r, z, N, MILD);
        const int64_t row = z->n_v_heads * z->d_v;
        const struct qrn_tensor out = mem_tensor(&m, QRN_F32, 3,
                                                 (const int64_t[]){T, z->n_v_heads, z->d_v}),
                                got = mem_tensor(&m, QRN_F32, 3,
                                                 (const int64_t[]){N, z->n_v_heads, z->d_v});
        for (int s = 0; s < N; s++) {
            const int64_t n = lengths[i > 0][s];
            alone[s] = stand_at(&m, z, positions[s], (uint64_t)s, true);
            together[s] = stand_at(&m, z, positions[s], (uint64_t)s, i == 0 || s != ODD);
            copy_tokens(&all, c->seq_begin[s], &w, positions[s], n);
            call_add(c, s, &together[s], n);
        }
        call_finish(c, N, &all, got);
        run(dev, k, &c->args);
        for (int s = 0; s < N; s++) {
            const int64_t n = lengths[i > 0][s], at = positions[s];
            if (n) feed(dev, k, &w, &alone[s], n, out);
            together[s].position += (int32_t)n;
            if (memcmp((float *)got.data + c->seq_begin[s] * row, (float *)out.data + at * row,
                       (size_t)(n * row) * sizeof(float)) != 0)
                fail_msg("%s: sequence %d differs in a batch", k->name, s);
            assert_same_rows(z, &alone[s], &together[s], k->name);
            const int slot = together[s].position / C & 1;
            assert_memory_equal(alone[s].state[slot], together[s].state[slot], state_bytes(z));
        }
        if (is_gpu(dev)) { /* once more, and recorded */
            op_test_against_reference(dev, QRN_OP_gdn_open_chunk, &c->args, 1e-5, "one token each");
            op_test_same_bits(QRN_OP_gdn_open_chunk, &c->args, "one token each");
        }
        mem_free_all(&m);
    }
}

static void test_one_token_each(void **state)
{
    (void)state;
    each_kernel(2, one_token_each);
}

static void test_sizes(void **state)
{
    (void)state;
    assert_int_equal(qrn_gdn_state_bytes(32, 128, 128), 32 * 128 * 128 * 4);
    assert_int_equal(qrn_gdn_state_bytes(1, 1, 1), 64);
    assert_int_equal(qrn_gdn_rows_bytes(1, 1, 1, 1), 512 + 256 + 256);
    assert_int_equal(qrn_gdn_rows_bytes(16, 32, 128, 128),
                     32 * 512 + 16 * 128 * 256 + 32 * 64 * 512);
    assert_int_equal(qrn_gdn_state_bytes(0, 128, 128), 0);
    assert_int_equal(qrn_gdn_state_bytes(INT64_MAX, 128, 128), 0);
    assert_int_equal(qrn_gdn_rows_bytes(1, INT64_MAX / 2, 1, 1), 0);
}

static void test_errors(void **state)
{
    (void)state;
    enum { T = 3 };
    const struct shape *z = &shapes[1];
    struct mem m = {0};
    struct rng r = {5};
    struct call *c = make_call(&m);
    struct qrn_device *dev;
    assert_int_equal(qrn_device_open(NULL, &dev, NULL), QRN_OK);
    const struct tokens w = make_tokens(&m, &r, z, T, MILD);
    struct sequence s = make_sequence(&m, z, false);
    start(&s, z, 1);
    s.position = 62;
    call_add(c, 0, &s, T);
    call_finish(c, 1, &w, mem_tensor(&m, QRN_F32, 3, (const int64_t[]){T, z->n_v_heads, z->d_v}));
    struct qrn_gdn_open_chunk_args a = c->args;
#define FAILS(status, text) op_test_fails(dev, QRN_OP_gdn_open_chunk, &a, status, text); a = c->args
    a.k.n_dims = 0;
    FAILS(QRN_ERR_ARGUMENT, "gdn_open_chunk: k is missing");
    a.q.dtype = QRN_F16;
    FAILS(QRN_ERR_DTYPE, "q is f16, wants f32 or bf16");
    a.q.dtype = QRN_BF16;
    FAILS(QRN_ERR_DTYPE, "k is f32, wants bf16");
    a.acts = QRN_ACT_Q8;
    FAILS(QRN_ERR_ARGUMENT, "acts is 1, wants QRN_ACT_F32 (0) or QRN_ACT_BF16 (2)");
    a.k.shape[2] = 32;
    FAILS(QRN_ERR_SHAPE, "k.shape[2] is 32, wants 64 (that of q)");
    a.v.shape[0] = 2;
    FAILS(QRN_ERR_SHAPE, "v.shape[0] is 2, wants 3");
    a.q.shape[2] = a.k.shape[2] = 0;
    FAILS(QRN_ERR_SHAPE, "q.shape[2] is 0, wants 1 or more");
    a.g.shape[1] = 5;
    FAILS(QRN_ERR_SHAPE, "g.shape[1] is 5, wants 6");
    a.v.shape[1] = a.out.shape[1] = a.g.shape[1] = a.beta.shape[1] = 5;
    FAILS(QRN_ERR_SHAPE, "5 value heads, wants a multiple of the 2 key heads");
    a.head_map = (enum qrn_head_map)0;
    FAILS(QRN_ERR_ARGUMENT, "head_map is 0, wants QRN_HEADS_BLOCK (1) or QRN_HEADS_TILED (2)");
    a.scale = INFINITY;
    FAILS(QRN_ERR_ARGUMENT, "scale is inf, wants a finite number");
    a.seq_begin.dtype = QRN_F32;
    FAILS(QRN_ERR_DTYPE, "seq_begin is f32, wants i32");
    a.position.shape[0] = 0;
    FAILS(QRN_ERR_SHAPE, "position.shape[0] is 0, wants 1");
    a.state.shape[1] = 2;
    FAILS(QRN_ERR_SHAPE, "state.shape[1] is 2, wants 3");
    a.rows.dtype = QRN_I64;
    FAILS(QRN_ERR_DTYPE, "rows is i64, wants address");
    a.rows_offset = 4;
    FAILS(QRN_ERR_ARGUMENT, "rows_offset 4, want multiples of 8");
    a.out = a.v;
    FAILS(QRN_ERR_ARGUMENT, "out overlaps v");
    c->seq_begin[1] = 2;
    FAILS(QRN_ERR_ARGUMENT, "seq_begin[1] is 2, wants 3 (the tokens)");
    c->seq_begin[1] = -1;
    FAILS(QRN_ERR_ARGUMENT, "seq_begin[1] is -1, wants 0 or more");
    c->seq_begin[1] = 3;
    c->seq_begin[0] = 1;
    FAILS(QRN_ERR_ARGUMENT, "seq_begin[0] is 1, wants 0");
    c->seq_begin[0] = 0;
    c->position[0] = -1;
    FAILS(QRN_ERR_ARGUMENT, "position[0] is -1, wants 0 to 2147483644");
    c->position[0] = 62;
    c->rows[0][1] = 0; /* chunk 1 is entered by the third token */
    FAILS(QRN_ERR_ARGUMENT, "rows[0][1] is 0, wants a multiple of 8, not 0");
    c->rows[0][1] = (uintptr_t)s.rows[1];
    c->state[0][2] = 4;
    FAILS(QRN_ERR_ARGUMENT, "state[0][2] is 0x4, wants a multiple of 8, not 0");
    c->state[0][2] = (uintptr_t)s.state[1];
    c->state[0][1] = 0; /* chunk 2 is not reached */
    c->position[0] = 61;
    c->rows[0][1] = 0;
    assert_int_equal(qrn_gdn_open_chunk(dev, &a, NULL), QRN_OK);
    c->state[0][0] = 0;
    FAILS(QRN_ERR_ARGUMENT, "state[0][0] is 0, wants");
#undef FAILS
    qrn_device_close(dev);
    mem_free_all(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference),        cmocka_unit_test(test_state),
        cmocka_unit_test(test_splits),           cmocka_unit_test(test_batch),
        cmocka_unit_test(test_rollback),         cmocka_unit_test(test_untouched),
        cmocka_unit_test(test_strided),          cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_errors),           cmocka_unit_test(test_uneven),
        cmocka_unit_test(test_rounded_sequence), cmocka_unit_test(test_rounded_parts),
        cmocka_unit_test(test_rounded_batch),    cmocka_unit_test(test_one_token_each),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
