/* SPDX-License-Identifier: MIT
 * gdn_open_chunk: one sequence, one set of bits, however it is cut into calls, with any threads, alone
 * or in a batch, and after going back. */
#include <stdlib.h>

#include "ops/gdn_sequences.h"
#include "support/sanitized.h"

/* Three lanes show sanitizers what two or one would, and test_state has all shapes for them. */
enum { LEAST_THREADS = SANITIZED ? 3 : 1 };

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

/* The latest row of a chunk that is still open has the token's keys, as they are: what alone and together
 * lack alike is no less missed. */
static void assert_keeps_keys(const struct shape *z, const struct sequence *s,
                              const struct tokens *w, const char *what)
{
    const int64_t at = s->position - 1;
    const float *rows = (const float *)((const double *)s->rows[at / C & 1] + z->n_v_heads * C);
    for (int64_t h = 0; h < z->n_k_heads; h++)
        for (int64_t i = 0; i < z->d_k && at % C != C - 1; i++)
            if (rows[(h * C + at % C) * z->d_k + i] != (float)qrn_ref_get(&w->k, at, h, i, 0))
                fail_msg("%s: head %d does not keep the key of position %d", what, (int)h, (int)at);
}

/* Several sequences of a token each, at all kinds of places: as each of them alone.  In some calls
 * there are others among them, over an edge and at odd addresses.  The third have one head,
 * which alone is few enough for a GPU to have them cut.  As many heads as models have, of seven and of nine
 * sequences, are what a real GPU's multiprocessors have at once, and more. */
static void one_token_each(struct qrn_device *dev, const struct qrn_kernel *k)
{
    enum { MOST = 9, T = 128, ODD = 4, N_CASES = 7 };
    static const struct shape model = {16, 32, 128, 128, QRN_HEADS_BLOCK, "heads of a model"};
    static const struct {
        const struct shape *shape;
        int n;
        bool alike; /* a token each, at good addresses */
    } cases[N_CASES] = {{&wide_shapes[2], 7, true},  {&wide_shapes[3], 7, false},
                        {&wide_shapes[0], 7, false}, {&model, 7, true},
                        {&model, 7, false},          {&model, MOST, true},
                        {&model, MOST, false}};
    static const int32_t positions[MOST] = {0, 31, 63, 32, 63, 100, 62, 40, 7};
    static const int64_t lengths[2][MOST] = {{1, 1, 1, 1, 1, 1, 1, 1, 1},
                                             {1, 0, 2, 1, 1, 1, 1, 1, 1}};
    for (int i = 0; i < N_CASES; i++) {
        const struct shape *z = cases[i].shape;
        const int N = cases[i].n;
        if (z == &model && !(op_test_gpu_is_real() && is_gpu(dev))) continue;
        struct mem m = {0};
        struct rng r = {(uint64_t)i + 3};
        struct call *c = make_call(&m);
        struct sequence alone[MOST], together[MOST];
        const struct tokens w = make_tokens(&m, &r, z, T, MILD),
                            all = make_tokens(&m, &r, z, N, MILD);
        const int64_t row = z->n_v_heads * z->d_v;
        const struct qrn_tensor out = mem_tensor(&m, QRN_F32, 3,
                                                 (const int64_t[]){T, z->n_v_heads, z->d_v}),
                                got = mem_tensor(&m, QRN_F32, 3,
                                                 (const int64_t[]){N, z->n_v_heads, z->d_v});
        for (int s = 0; s < N; s++) {
            const int64_t n = lengths[!cases[i].alike][s];
            alone[s] = stand_at(&m, z, positions[s], (uint64_t)s, true);
            together[s] = stand_at(&m, z, positions[s], (uint64_t)s, cases[i].alike || s != ODD);
            copy_tokens(&all, c->seq_begin[s], &w, positions[s], n);
            call_add(c, s, &together[s], n);
        }
        call_finish(c, N, &all, got);
        run(dev, k, &c->args);
        for (int s = 0; s < N; s++) {
            const int64_t n = lengths[!cases[i].alike][s], at = positions[s];
            if (n) feed(dev, k, &w, &alone[s], n, out);
            together[s].position += (int32_t)n;
            if (memcmp((float *)got.data + c->seq_begin[s] * row, (float *)out.data + at * row,
                       (size_t)(n * row) * sizeof(float)) != 0)
                fail_msg("%s: sequence %d differs in a batch", k->name, s);
            assert_same_rows(z, &alone[s], &together[s], k->name);
            if (n == 1) assert_keeps_keys(z, &together[s], &w, k->name);
            const int slot = together[s].position / C & 1;
            assert_memory_equal(alone[s].state[slot], together[s].state[slot], state_bytes(z));
        }
        if (is_gpu(dev)) { /* once more, and recorded */
            op_test_against_reference(dev, QRN_OP_gdn_open_chunk, &c->args, 1e-5, "one token each");
            op_test_same_bits(QRN_OP_gdn_open_chunk, &c->args, "one token each");
            c->args.settled = true;
            op_test_same_bits(QRN_OP_gdn_open_chunk, &c->args, "one token each, settled");
        }
        mem_free_all(&m);
    }
}

static void test_one_token_each(void **state)
{
    (void)state;
    each_kernel(2, one_token_each);
}

/* Many sequences of one head and a token each, of which some are at their chunk's edge: which of a GPU's blocks takes
 * which of them depends on that, up to so many. */
static void many(struct qrn_device *dev, const struct qrn_kernel *k)
{
    static const int counts[] = {33, 90, MOST_OF_A_CALL};
    const struct shape *z = &wide_shapes[0];
    const int64_t row = z->n_v_heads * z->d_v;
    for (size_t i = 0; is_gpu(dev) && i < sizeof counts / sizeof *counts; i++) {
        const int N = counts[i];
        struct mem m = {0};
        struct rng r = {i + 71};
        struct call *c = make_call(&m), *one = make_call(&m);
        struct sequence alone[MOST_OF_A_CALL], together[MOST_OF_A_CALL];
        const struct tokens all = make_tokens(&m, &r, z, N, MILD),
                            w = make_tokens(&m, &r, z, 1, MILD);
        const int64_t shape[] = {N, z->n_v_heads, z->d_v};
        const struct qrn_tensor got = mem_tensor(&m, QRN_F32, 3, shape),
                                out = mem_tensor(&m, QRN_F32, 3, shape);
        for (int s = 0; s < N; s++) {
            const int32_t at = rng_below(&r, 5) ? (int32_t)rng_below(&r, 130) : C - 1;
            alone[s] = stand_at(&m, z, at, (uint64_t)s, true);
            together[s] = stand_at(&m, z, at, (uint64_t)s, true);
            call_add(c, s, &together[s], 1);
        }
        call_finish(c, N, &all, got);
        run(dev, k, &c->args);
        for (int s = 0; s < N; s++) {
            struct qrn_tensor to = out;
            to.data = (float *)out.data + s * row;
            to.shape[0] = 1;
            copy_tokens(&w, 0, &all, s, 1);
            call_add(one, 0, &alone[s], 1);
            call_finish(one, 1, &w, to);
            run(dev, k, &one->args);
            alone[s].position++, together[s].position++;
            if (memcmp((float *)got.data + s * row, to.data, (size_t)row * sizeof(float)) != 0)
                fail_msg("%s: sequence %d of %d differs", k->name, s, N);
            assert_same_rows(z, &alone[s], &together[s], k->name);
            const int slot = together[s].position / C & 1;
            assert_memory_equal(alone[s].state[slot], together[s].state[slot], state_bytes(z));
        }
        mem_free_all(&m);
    }
}

static void test_many(void **state)
{
    (void)state;
    each_kernel(2, many);
}

/* The same whichever of an emulated block's warps comes last: those of columns, of open rows, that store, that read. */
static void test_slow_warps(void **state)
{
    static const char *const warps[] = {"0", "3", "4", "5", "7", "8"};
    (void)state;
    if (op_test_gpu_is_real()) skip();
    for (size_t i = 0; i < sizeof warps / sizeof *warps; i++) {
        assert_int_equal(setenv("QRN_EMULATED_SLOW_WARP", warps[i], 1), 0);
        struct qrn_device *dev = op_test_open_gpu_for(QRN_OP_gdn_open_chunk);
        assert_int_equal(unsetenv("QRN_EMULATED_SLOW_WARP"), 0);
        if (!dev) skip();
        one_token_each(dev, qrn_kernel_at(dev, QRN_OP_gdn_open_chunk, 0));
        qrn_device_close(dev);
    }
}

/* Calls that a GPU walks in tiles of chunks, which begin and end in the midst of them: two sequences in each, heads of
 * 128 and sizes that neither pieces of rows nor slices of columns divide. */
static void tiles(struct qrn_device *dev, const struct qrn_kernel *k)
{
    enum { T = 200, N = 2, N_CALLS = 3 };
    static const struct shape sizes[] = {
        {1, 2, 128, 128, QRN_HEADS_BLOCK, "two value heads of a key head"},
        {2, 4, 128, 36, QRN_HEADS_TILED, "a slice of four columns"},
        {1, 1, 30, 33, QRN_HEADS_BLOCK, "odd rows and columns"},
    };
    static const int64_t lengths[N_CALLS][N] = {{5, 40}, {70, 30}, {125, 130}};
    for (size_t i = 0; is_gpu(dev) && i < sizeof sizes / sizeof *sizes; i++) {
        const struct shape *z = &sizes[i];
        const int64_t row = z->n_v_heads * z->d_v;
        struct mem m = {0};
        struct rng r = {i + 11};
        struct sequence alone[N], together[N];
        struct tokens w[N];
        struct qrn_tensor out[N];
        for (int s = 0; s < N; s++) {
            w[s] = make_tokens(&m, &r, z, T, STRONG);
            out[s] = mem_tensor(&m, QRN_F32, 3, (const int64_t[]){T, z->n_v_heads, z->d_v});
            alone[s] = make_sequence(&m, z, false);
            together[s] = make_sequence(&m, z, s == 0);
            start(&alone[s], z, (uint64_t)s);
            start(&together[s], z, (uint64_t)s);
            feed_to(dev, k, &w[s], &alone[s], T, 1, out[s]);
        }
        for (int c = 0; c < N_CALLS; c++) {
            struct call *call = make_call(&m);
            const int64_t total = lengths[c][0] + lengths[c][1];
            const struct tokens all = make_tokens(&m, &r, z, total, STRONG);
            const struct qrn_tensor got =
                mem_tensor(&m, QRN_F32, 3, (const int64_t[]){total, z->n_v_heads, z->d_v});
            for (int s = 0; s < N; s++) {
                copy_tokens(&all, call->seq_begin[s], &w[s], together[s].position, lengths[c][s]);
                call_add(call, s, &together[s], lengths[c][s]);
            }
            call_finish(call, N, &all, got);
            run(dev, k, &call->args);
            for (int s = 0; s < N; s++) {
                if (memcmp((float *)got.data + call->seq_begin[s] * row,
                           (float *)out[s].data + together[s].position * row,
                           (size_t)(lengths[c][s] * row) * sizeof(float)) != 0)
                    fail_msg("%s, %s: sequence %d differs in call %d", k->name, z->why, s, c);
                together[s].position += (int32_t)lengths[c][s];
            }
        }
        for (int s = 0; s < N; s++) assert_same(z, &alone[s], &together[s], out[s], out[s], z->why);
        mem_free_all(&m);
    }
}

static void test_tiles(void **state)
{
    (void)state;
    each_kernel(2, tiles);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_splits),    cmocka_unit_test(test_batch),
        cmocka_unit_test(test_uneven),    cmocka_unit_test(test_rollback),
        cmocka_unit_test(test_untouched), cmocka_unit_test(test_one_token_each),
        cmocka_unit_test(test_many),      cmocka_unit_test(test_slow_warps),
        cmocka_unit_test(test_tiles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
