/* SPDX-License-Identifier: MIT
 * attention_paged: every kernel against the reference, and one sequence, one set of bits. */
#include <math.h>

#include "ops/paged_cache.h"

static const struct {
    enum qrn_dtype type;
    int64_t n_heads, n_kv_heads, head_dim;
    int64_t n_seqs, position[MAX_SEQS], n_new[MAX_SEQS];
    int64_t window;
    float softcap;
    double spread; /* of q: 4 makes the softmax nearly a choice */
    const char *why;
} cases[] = {
    {QRN_F32, 1, 1, 1, 1, {0}, {1}, 0, 0, 1, "smallest"},
    {QRN_F32, 4, 2, 256, 1, {0}, {66}, 0, 0, 1, "prompt over a page edge"},
    {QRN_F16, 8, 2, 256, 1, {0}, {70}, 0, 0, 1, "the same in halves"},
    {QRN_F16, 8, 2, 256, 1, {200}, {1}, 0, 0, 1, "decode"},
    {QRN_F16, 6, 1, 64, 2, {63, 64}, {1, 1}, 0, 0, 4, "decode at an edge, sharp"},
    {QRN_F32, 3, 3, 20, 3, {0, 5, 127}, {3, 0, 2}, 0, 0, 1, "odd width, a sequence without tokens"},
    {QRN_F16, 5, 1, 96, 1, {90}, {9}, 0, 0, 1, "group of five"},
    {QRN_F32, 4, 2, 128, 1, {190}, {5}, 70, 0, 1, "window over two pages"},
    {QRN_F16, 2, 1, 128, 1, {300}, {40}, 1, 0, 1, "window of one"},
    {QRN_F32, 2, 2, 512, 1, {10}, {3}, 0, 30, 4, "softcap, wide heads"},
    {QRN_F32, 4, 2, 33, 1, {64}, {64}, 64, 5, 4, "whole page, window of a page, softcap"},
    {QRN_F16, 2, 2, 7, 5, {0, 62, 64, 127, 300}, {1, 3, 64, 65, 20}, 0, 0, 1, "batch"},
    {QRN_F16, 24, 2, 256, 2, {130, 700}, {1, 1}, 100, 0, 1, "decode, a group of twelve, window"},
    {QRN_F16, 16, 1, 128, 3, {2200, 5, 64}, {1, 1, 1}, 0, 20, 4, "decode, a group of 16, softcap"},
    {QRN_F16, 8, 1, 256, 3, {191, 64, 320}, {1, 0, 1}, 0, 0, 1, "decode, a sequence passes"},
    {QRN_F16, 2, 2, 64, 1, {0}, {0}, 0, 0, 1, "no tokens"},
};

static float scale_of(int64_t head_dim)
{
    return 1.0f / sqrtf((float)head_dim);
}

static void test_reference(void **state)
{
    (void)state;
    struct devices d;
    devices_open_for(&d, 2, QRN_OP_attention_paged);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mem m = {0};
        struct rng r = {i};
        struct paged_cache c;
        const int64_t width = cases[i].head_dim, zero[MAX_SEQS] = {0};
        cache_init(&m, &c, cases[i].type, cases[i].n_seqs, cases[i].n_kv_heads, width);
        int64_t all[MAX_SEQS];
        for (int64_t s = 0; s < c.n_seqs; s++) all[s] = cases[i].position[s] + cases[i].n_new[s];
        const int64_t kv_shape[] = {cache_step(&c, zero, all), c.n_kv_heads, width};
        const struct qrn_kv_append_paged_args append = cache_append(
            &c, mem_filled(&m, &r, 1.0, 3, kv_shape), mem_filled(&m, &r, 1.0, 3, kv_shape));
        call(d.dev[0], QRN_OP_kv_append_paged, &append);
        const int64_t n = cache_step(&c, cases[i].position, cases[i].n_new);
        const int64_t q_shape[] = {n, cases[i].n_heads, width};
        struct qrn_attention_paged_args a =
            cache_attend(&c, mem_filled(&m, &r, cases[i].spread, 3, q_shape),
                         mem_tensor(&m, QRN_F32, 3, q_shape), scale_of(width));
        a.window = cases[i].window;
        a.softcap = cases[i].softcap;
        /* errors of scores, of about 1e-7 x sqrt(head_dim) x spread, move exp as much */
        for (size_t j = 0; j < d.n; j++)
            op_test_against_reference(d.dev[j], QRN_OP_attention_paged, &a, 1e-5 * cases[i].spread,
                                      cases[i].why);
        op_test_same_bits(QRN_OP_attention_paged, &a, cases[i].why);
        mem_free_all(&m);
    }
    devices_close(&d);
}

/* q lies beside its gate, out is a slice of something wider. */
static void test_strided(void **state)
{
    (void)state;
    struct devices d;
    struct mem m = {0};
    struct rng r = {7};
    struct paged_cache c;
    devices_open_for(&d, 2, QRN_OP_attention_paged);
    cache_init(&m, &c, QRN_F16, 1, 2, 64);
    cache_step(&c, (const int64_t[]){0}, (const int64_t[]){37});
    const struct qrn_tensor kv = mem_filled(&m, &r, 1.0, 3, (const int64_t[]){37, 4, 64});
    const struct qrn_kv_append_paged_args append =
        cache_append(&c, qrn_tensor_slice(kv, 1, 0, 2), qrn_tensor_slice(kv, 1, 2, 2));
    call(d.dev[0], QRN_OP_kv_append_paged, &append);
    const struct qrn_tensor q = mem_filled(&m, &r, 1.0, 3, (const int64_t[]){37, 4, 128});
    const struct qrn_tensor out = mem_filled(&m, &r, 1.0, 3, (const int64_t[]){37, 6, 70});
    const struct qrn_attention_paged_args a =
        cache_attend(&c, qrn_tensor_slice(q, 2, 0, 64),
                     qrn_tensor_slice(qrn_tensor_slice(out, 1, 1, 4), 2, 6, 64), 0.125f);
    for (size_t j = 0; j < d.n; j++)
        op_test_against_reference(d.dev[j], QRN_OP_attention_paged, &a, 1e-5, "strided");
    devices_close(&d);
    mem_free_all(&m);
}

/* --- one sequence, one set of bits --- */

enum { N_SEQS = 5, HEADS = 4, KV_HEADS = 2 };
static const int64_t at[N_SEQS] = {0, 62, 64, 127, 300}, all_takes[N_SEQS] = {1, 3, 64, 65, 200};
enum { LONGEST = 500 };

struct history { /* all there is of each sequence: [LONGEST, heads, head_dim] */
    struct qrn_tensor q[N_SEQS], k[N_SEQS], v[N_SEQS], out[N_SEQS];
};

static struct history make_history(struct mem *m, struct rng *r, int64_t head_dim)
{
    struct history h;
    const int64_t wide[] = {LONGEST, HEADS, head_dim}, narrow[] = {LONGEST, KV_HEADS, head_dim};
    for (int s = 0; s < N_SEQS; s++) {
        h.q[s] = mem_filled(m, r, 1.5, 3, wide);
        h.k[s] = mem_filled(m, r, 1.0, 3, narrow);
        h.v[s] = mem_filled(m, r, 1.0, 3, narrow);
        h.out[s] = mem_tensor(m, QRN_F32, 3, wide);
    }
    return h;
}

/* Tokens first .. first + n - 1 of sequence s, alone in a call, in calls of `step`. */
static void feed(struct qrn_device *dev, const struct paged_cache *all, const struct history *h,
                 int s, int64_t first, int64_t n, int64_t step)
{
    struct paged_cache one = *all;
    one.n_seqs = 1;
    one.table = all->table + s;
    for (int64_t t = first; t < first + n; t += step) {
        const int64_t now = first + n - t < step ? first + n - t : step;
        cache_step(&one, &t, &now);
        const struct qrn_kv_append_paged_args append = cache_append(
            &one, qrn_tensor_slice(h->k[s], 0, t, now), qrn_tensor_slice(h->v[s], 0, t, now));
        const struct qrn_attention_paged_args a =
            cache_attend(&one, qrn_tensor_slice(h->q[s], 0, t, now),
                         qrn_tensor_slice(h->out[s], 0, t, now), scale_of(all->head_dim));
        call(dev, QRN_OP_kv_append_paged, &append);
        call(dev, QRN_OP_attention_paged, &a);
    }
}

/* takes[s] tokens of all sequences s in one call. */
static void feed_batch(struct mem *m, struct qrn_device *dev, struct paged_cache *c,
                       const struct history *h, const int64_t *takes)
{
    const int64_t n = cache_step(c, at, takes), d = c->head_dim;
    struct qrn_tensor q = mem_tensor(m, QRN_F32, 3, (const int64_t[]){n, HEADS, d});
    struct qrn_tensor out = mem_tensor(m, QRN_F32, 3, (const int64_t[]){n, HEADS, d});
    struct qrn_tensor k = mem_tensor(m, QRN_F32, 3, (const int64_t[]){n, KV_HEADS, d});
    struct qrn_tensor v = mem_tensor(m, QRN_F32, 3, (const int64_t[]){n, KV_HEADS, d});
    for (int s = 0; s < N_SEQS; s++) {
        const size_t wide = (size_t)(HEADS * d) * 4, narrow = (size_t)(KV_HEADS * d) * 4;
        const size_t from = (size_t)at[s], to = (size_t)c->seq_begin[s], count = (size_t)takes[s];
        memcpy((char *)q.data + to * wide, (char *)h->q[s].data + from * wide, count * wide);
        memcpy((char *)k.data + to * narrow, (char *)h->k[s].data + from * narrow, count * narrow);
        memcpy((char *)v.data + to * narrow, (char *)h->v[s].data + from * narrow, count * narrow);
    }
    const struct qrn_kv_append_paged_args append = cache_append(c, k, v);
    const struct qrn_attention_paged_args a = cache_attend(c, q, out, scale_of(d));
    call(dev, QRN_OP_kv_append_paged, &append);
    call(dev, QRN_OP_attention_paged, &a);
    for (int s = 0; s < N_SEQS; s++) {
        const size_t wide = (size_t)(HEADS * d) * 4;
        memcpy((char *)h->out[s].data + (size_t)at[s] * wide,
               (char *)out.data + (size_t)c->seq_begin[s] * wide, (size_t)takes[s] * wide);
    }
}

static void one_set_of_bits(enum qrn_dtype type, int64_t head_dim, const char *disabled)
{
    static const int64_t steps[] = {1, 2, 3, 7, 63, 64, 65, 200};
    struct mem m = {0};
    struct rng r = {(uint64_t)head_dim};
    struct paged_cache c;
    cache_init(&m, &c, type, N_SEQS, KV_HEADS, head_dim);
    const struct history h = make_history(&m, &r, head_dim);
    void *want[N_SEQS];
    for (int threads = 1; threads <= 3; threads++) {
        const struct qrn_device_options o = {.cpu_disable = disabled, .n_threads = threads};
        struct qrn_device *dev;
        assert_int_equal(qrn_device_open(&o, &dev, NULL), QRN_OK);
        for (size_t i = 0; i <= sizeof steps / sizeof *steps; i++) {
            if (threads > 1 && i < 7 && i != 3) continue; /* 7, 200 tokens, batch */
            const bool batch = i == sizeof steps / sizeof *steps;
            cache_clear(&c);
            for (int s = 0; s < N_SEQS; s++) {
                feed(dev, &c, &h, s, 0, at[s], batch ? 64 : steps[i]);
                if (!batch) feed(dev, &c, &h, s, at[s], all_takes[s], steps[i]);
            }
            if (batch) feed_batch(&m, dev, &c, &h, all_takes);
            for (int s = 0; s < N_SEQS; s++) {
                const size_t n = (size_t)((at[s] + all_takes[s]) * HEADS * head_dim) * 4;
                if (threads == 1 && i == 0) {
                    want[s] = mem_guarded(&m, n);
                    memcpy(want[s], h.out[s].data, n);
                } else if (memcmp(want[s], h.out[s].data, n) != 0) {
                    fail_msg("%s, %s, head_dim %d: sequence %d differs in calls of %d (0: batch), "
                             "%d threads",
                             qrn_device_bits(dev), qrn_dtype_info(type)->name, (int)head_dim, s,
                             batch ? 0 : (int)steps[i], threads);
                }
            }
        }
        qrn_device_close(dev);
    }
    mem_free_all(&m);
}

static void test_bits(void **state)
{
    (void)state;
    static const char *const disabled[] = {"", "avx512f", "avx2"};
    for (size_t i = 0; i < sizeof disabled / sizeof *disabled; i++) {
        one_set_of_bits(QRN_F16, 64, disabled[i]);
        one_set_of_bits(QRN_F32, 20, disabled[i]);
    }
}

/* The same of a GPU: new tokens in calls of 64, 1, 7 and all at once with those of other
 * sequences. */
static void one_set_of_bits_on_gpu(enum qrn_dtype type, int64_t head_dim)
{
    static const int64_t steps[] = {64, 1, 7, 0}, takes[N_SEQS] = {1, 3, 9, 66, 12};
    struct devices d;
    struct mem m = {0};
    struct rng r = {(uint64_t)head_dim};
    struct paged_cache c;
    void *want[N_SEQS];
    devices_open_for(&d, 1, QRN_OP_attention_paged);
    struct qrn_device *dev = d.dev[d.n - 1];
    cache_init(&m, &c, type, N_SEQS, KV_HEADS, head_dim);
    const struct history h = make_history(&m, &r, head_dim);
    for (int i = 0; i < 4 && !qrn_device_host_reads(dev); i++) {
        cache_clear(&c);
        for (int s = 0; s < N_SEQS; s++) {
            feed(dev, &c, &h, s, 0, at[s], 64);
            if (steps[i]) feed(dev, &c, &h, s, at[s], takes[s], steps[i]);
        }
        if (!steps[i]) feed_batch(&m, dev, &c, &h, takes);
        for (int s = 0; s < N_SEQS; s++) {
            const size_t n = (size_t)((at[s] + takes[s]) * HEADS * head_dim) * 4;
            if (i == 0) want[s] = memcpy(mem_guarded(&m, n), h.out[s].data, n);
            if (memcmp(want[s], h.out[s].data, n) != 0)
                fail_msg("%s, head_dim %d: sequence %d differs in calls of %d (0: batch)",
                         qrn_dtype_info(type)->name, (int)head_dim, s, (int)steps[i]);
        }
    }
    devices_close(&d);
    mem_free_all(&m);
}

static void test_bits_on_gpu(void **state)
{
    (void)state;
    one_set_of_bits_on_gpu(QRN_F16, 64);
    one_set_of_bits_on_gpu(QRN_F32, 20);
}

/* A sequence too long for one lane is walked by all of them. */
static void test_long(void **state)
{
    (void)state;
    struct mem m = {0};
    struct rng r = {3};
    struct paged_cache c;
    struct devices d;
    devices_open_for(&d, 3, QRN_OP_attention_paged);
    cache_init(&m, &c, QRN_F16, 2, 1, 64);
    const int64_t zero[] = {0, 0}, all[] = {2400, 70}, last[] = {2399, 65}, n_new[] = {1, 5};
    const int64_t kv_shape[] = {cache_step(&c, zero, all), 1, 64};
    const struct qrn_kv_append_paged_args append = cache_append(
        &c, mem_filled(&m, &r, 1.0, 3, kv_shape), mem_filled(&m, &r, 1.0, 3, kv_shape));
    call(d.dev[0], QRN_OP_kv_append_paged, &append);
    const int64_t q_shape[] = {cache_step(&c, last, n_new), 6, 64};
    const struct qrn_attention_paged_args a = cache_attend(
        &c, mem_filled(&m, &r, 1.0, 3, q_shape), mem_tensor(&m, QRN_F32, 3, q_shape), 0.125f);
    for (size_t j = 0; j < d.n; j++)
        op_test_against_reference(d.dev[j], QRN_OP_attention_paged, &a, 1e-5, "2400 positions");
    op_test_same_bits(QRN_OP_attention_paged, &a, "2400 positions");
    devices_close(&d);
    mem_free_all(&m);
}

/* Runs of one block of keys, two and four: tokens alone and all at once, next to the reference. */
static void long_bits(struct devices *d, int64_t n_heads, int64_t head_dim, int64_t n_pages)
{
    enum { NEW = 6, MOST = 860 };
    const int64_t past = 64 * n_pages - 20 - NEW;
    struct mem m = {0};
    struct rng r = {9};
    struct paged_cache c;
    struct qrn_device *dev = d->dev[d->n - 1];
    cache_init(&m, &c, QRN_F16, 1, 1, head_dim);
    const int64_t zero = 0, all = 64 * MAX_PAGES, kv_shape[] = {all, 1, head_dim};
    cache_step(&c, &zero, &all);
    const struct qrn_kv_append_paged_args append = cache_append(
        &c, mem_filled(&m, &r, 1.0, 3, kv_shape), mem_filled(&m, &r, 1.0, 3, kv_shape));
    call(dev, QRN_OP_kv_append_paged, &append);
    uint64_t *table = mem_guarded(&m, MOST * sizeof *table); /* the same pages again and again */
    for (int i = 0; i < MOST; i++) table[i] = c.table[0][i % (MAX_PAGES - 3)];
    const int64_t shape[] = {NEW, n_heads, head_dim};
    struct qrn_attention_paged_args a =
        cache_attend(&c, mem_filled(&m, &r, 1.0, 3, shape), mem_tensor(&m, QRN_F32, 3, shape),
                     scale_of(head_dim));
    a.pages = qrn_tensor_2d(QRN_ADDRESS, table, 1, n_pages);
    cache_step(&c, (const int64_t[]){past}, (const int64_t[]){NEW});
    call(dev, QRN_OP_attention_paged, &a);
    for (int64_t i = NEW - 2; i < NEW; i++) {
        const int64_t one[] = {1, n_heads, head_dim};
        struct qrn_attention_paged_args alone = a;
        alone.q = qrn_tensor_slice(a.q, 0, i, 1);
        alone.out = mem_tensor(&m, QRN_F32, 3, one);
        cache_step(&c, (const int64_t[]){past + i}, (const int64_t[]){1});
        call(dev, QRN_OP_attention_paged, &alone);
        assert_memory_equal(alone.out.data, qrn_tensor_slice(a.out, 0, i, 1).data,
                            alone.out.n_bytes);
        if (i == NEW - 1)
            op_test_against_reference(dev, QRN_OP_attention_paged, &alone, 1e-5, "long past");
    }
    mem_free_all(&m);
}

static void test_long_bits(void **state)
{
    (void)state;
    struct devices d;
    devices_open_for(&d, 1, QRN_OP_attention_paged);
    long_bits(&d, 6, 64, 170);
    long_bits(&d, 3, 64, 860); /* more than 256 runs */
    long_bits(&d, 12, 128, 36);
    long_bits(&d, 10, 256, 8);
    long_bits(&d, 5, 256, 5);
    devices_close(&d);
}

/* --- rounded queries and weights --- */

static const struct {
    int64_t n_heads, n_kv_heads, head_dim;
    int64_t n_seqs, position[MAX_SEQS], n_new[MAX_SEQS];
    int64_t window;
    double spread;
    const char *why;
} rounded[] = {
    {4, 2, 256, 1, {0}, {70}, 0, 1, "prompt over a page edge"},
    {8, 1, 256, 3, {0, 300, 63}, {9, 12, 17}, 0, 1, "ragged, with a past"},
    {12, 1, 128, 2, {190, 0}, {12, 0}, 100, 1, "a group of twelve, window"},
    {1, 1, 64, 2, {0, 65}, {129, 128}, 0, 4, "sharp"},
    {2, 1, 128, 5, {0, 62, 64, 127, 300}, {1, 3, 64, 65, 20}, 0, 1, "batch, few rows and many"},
};

/* The kernel that a call gets rounds, or not; where the device has one that does. */
static void chosen(struct qrn_device *dev, const struct qrn_attention_paged_args *a, bool rounds)
{
    const struct qrn_kernel *k;
    bool has = false;
    for (size_t i = 0; (k = qrn_kernel_at(dev, QRN_OP_attention_paged, i)) != NULL; i++)
        has = has || strstr(k->name, ".wgmma");
    assert_int_equal(qrn_kernel_choose(dev, QRN_OP_attention_paged, a, &k, NULL), QRN_OK);
    assert_true(!!strstr(k->name, ".wgmma") == (has && rounds));
}

/* Each sequence alone has the bits that it has among the others, of few rows or many. */
static void rounded_alone(struct mem *m, struct qrn_device *dev, const struct paged_cache *c,
                          const struct qrn_attention_paged_args *all)
{
    call(dev, QRN_OP_attention_paged, all);
    for (int64_t s = 0; s < c->n_seqs; s++) {
        struct paged_cache one = *c;
        const int64_t first = c->seq_begin[s], n = c->seq_begin[s + 1] - first;
        const int64_t shape[] = {n, all->q.shape[1], all->q.shape[2]};
        if (n == 0) continue;
        one.n_seqs = 1;
        one.table = c->table + s;
        one.seq_begin = mem_guarded(m, 2 * sizeof(int32_t));
        one.position = c->position + s;
        one.seq_begin[0] = 0;
        one.seq_begin[1] = (int32_t)n;
        struct qrn_attention_paged_args a =
            cache_attend(&one, qrn_tensor_slice(all->q, 0, first, n),
                         mem_tensor(m, QRN_F32, 3, shape), all->scale);
        a.window = all->window;
        a.acts = all->acts;
        call(dev, QRN_OP_attention_paged, &a);
        assert_memory_equal(a.out.data, qrn_tensor_slice(all->out, 0, first, n).data,
                            a.out.n_bytes);
    }
}

static void test_rounded(void **state)
{
    (void)state;
    struct devices d;
    devices_open_for(&d, 1, QRN_OP_attention_paged);
    struct qrn_device *dev = d.dev[d.n - 1];
    for (size_t i = 0; i < sizeof rounded / sizeof *rounded; i++) {
        struct mem m = {0};
        struct rng r = {i};
        struct paged_cache c;
        const int64_t width = rounded[i].head_dim, zero[MAX_SEQS] = {0};
        cache_init(&m, &c, QRN_F16, rounded[i].n_seqs, rounded[i].n_kv_heads, width);
        int64_t all[MAX_SEQS];
        for (int64_t s = 0; s < c.n_seqs; s++)
            all[s] = rounded[i].position[s] + rounded[i].n_new[s];
        const int64_t kv_shape[] = {cache_step(&c, zero, all), c.n_kv_heads, width};
        const struct qrn_kv_append_paged_args append = cache_append(
            &c, mem_filled(&m, &r, 1.0, 3, kv_shape), mem_filled(&m, &r, 1.0, 3, kv_shape));
        call(d.dev[0], QRN_OP_kv_append_paged, &append);
        const int64_t n = cache_step(&c, rounded[i].position, rounded[i].n_new);
        const int64_t q_shape[] = {n, rounded[i].n_heads, width};
        struct qrn_attention_paged_args a =
            cache_attend(&c, mem_filled(&m, &r, rounded[i].spread, 3, q_shape),
                         mem_tensor(&m, QRN_F32, 3, q_shape), scale_of(width));
        a.window = rounded[i].window;
        chosen(dev, &a, false);
        a.acts = QRN_ACT_BF16;
        chosen(dev, &a, true);
        op_test_against_reference(dev, QRN_OP_attention_paged, &a, 4e-3 * rounded[i].spread,
                                  rounded[i].why);
        if (i == 1) op_test_same_bits(QRN_OP_attention_paged, &a, rounded[i].why);
        rounded_alone(&m, dev, &c, &a);
        mem_free_all(&m);
    }
    devices_close(&d);
}

/* Scores that rise by 3 (in base 2) from block to block, or fall: what weights are relative to follows
 * some of the rises and no others. */
static void test_rounded_slopes(void **state)
{
    (void)state;
    struct devices d;
    devices_open_for(&d, 1, QRN_OP_attention_paged);
    struct qrn_device *dev = d.dev[d.n - 1];
    for (int i = 0; i < 4; i++) {
        struct mem m = {0};
        struct rng r = {(uint64_t)i};
        struct paged_cache c;
        const int64_t width = i < 2 ? 256 : 64, zero[] = {0}, all[] = {700}, position[] = {680},
                      n_new[] = {20};
        const float slope = (i % 2 ? -0.05f : 0.05f) / (1.4427f * sqrtf((float)width));
        cache_init(&m, &c, QRN_F16, 1, 1, width);
        const int64_t kv_shape[] = {cache_step(&c, zero, all), 1, width},
                      q_shape[] = {20, 4, width};
        const struct qrn_tensor k = mem_filled(&m, &r, 1.0, 3, kv_shape),
                                q = mem_tensor(&m, QRN_F32, 3, q_shape);
        for (int64_t j = 0; j < 700 * width; j++)
            ((float *)k.data)[j] = ((float *)k.data)[j] * 0.1f + (float)(j / width) * slope;
        for (int64_t j = 0; j < 20 * 4 * width; j++) ((float *)q.data)[j] = 1.0f;
        const struct qrn_kv_append_paged_args append =
            cache_append(&c, k, mem_filled(&m, &r, 1.0, 3, kv_shape));
        call(d.dev[0], QRN_OP_kv_append_paged, &append);
        cache_step(&c, position, n_new);
        struct qrn_attention_paged_args a =
            cache_attend(&c, q, mem_tensor(&m, QRN_F32, 3, q_shape), scale_of(width));
        a.acts = QRN_ACT_BF16;
        chosen(dev, &a, true);
        op_test_against_reference(dev, QRN_OP_attention_paged, &a, 1e-3, "slopes");
        mem_free_all(&m);
    }
    devices_close(&d);
}

/* A page that is not there makes NaN of the tokens that attend to it, and of no others. */
static void missing_page(struct devices *d, int64_t head_dim, enum qrn_activation_type acts,
                         int64_t first, int64_t n)
{
    struct mem m = {0};
    struct rng r = {4};
    struct paged_cache c;
    struct qrn_device *dev = d->dev[d->n - 1];
    if (qrn_device_host_reads(dev)) return; /* it would refuse the table */
    cache_init(&m, &c, QRN_F16, 1, 1, head_dim);
    const int64_t zero = 0, all = first + n, kv_shape[] = {all, 1, head_dim};
    cache_step(&c, &zero, &all);
    const struct qrn_kv_append_paged_args append = cache_append(
        &c, mem_filled(&m, &r, 1.0, 3, kv_shape), mem_filled(&m, &r, 1.0, 3, kv_shape));
    call(dev, QRN_OP_kv_append_paged, &append);
    cache_step(&c, &first, &n);
    const int64_t shape[] = {n, 2, head_dim};
    struct qrn_attention_paged_args a =
        cache_attend(&c, mem_filled(&m, &r, 1.0, 3, shape), mem_tensor(&m, QRN_F32, 3, shape),
                     scale_of(head_dim));
    a.acts = acts;
    c.table[0][1] = 0;
    call(dev, QRN_OP_attention_paged, &a);
    const float *out = a.out.data;
    for (int64_t i = 0; i < n * 2 * head_dim; i++)
        if (isnan(out[i]) != (first + i / (2 * head_dim) >= 64))
            fail_msg("head_dim %d, acts %d: element %d of %d tokens at %d is %g", (int)head_dim,
                     (int)acts, (int)i, (int)n, (int)first, (double)out[i]);
    mem_free_all(&m);
}

static void test_missing_page(void **state)
{
    (void)state;
    struct devices d;
    devices_open_for(&d, 1, QRN_OP_attention_paged);
    missing_page(&d, 256, QRN_ACT_BF16, 0, 90);
    missing_page(&d, 128, QRN_ACT_BF16, 50, 40);
    missing_page(&d, 64, QRN_ACT_F32, 0, 90);
    missing_page(&d, 256, QRN_ACT_F32, 200, 1);
    missing_page(&d, 64, QRN_ACT_F32, 63, 1);
    devices_close(&d);
}

static void test_errors(void **state)
{
    (void)state;
    struct mem m = {0};
    struct rng r = {5};
    struct paged_cache c;
    struct qrn_device *dev;
    assert_int_equal(qrn_device_open(NULL, &dev, NULL), QRN_OK);
    cache_init(&m, &c, QRN_F16, 2, 2, 8);
    cache_step(&c, (const int64_t[]){0, 64}, (const int64_t[]){3, 1});
    const int64_t shape[] = {4, 4, 8};
    const struct qrn_attention_paged_args good = cache_attend(
        &c, mem_filled(&m, &r, 1.0, 3, shape), mem_tensor(&m, QRN_F32, 3, shape), 1.0f);
    struct qrn_attention_paged_args a;
    const enum qrn_op_id op = QRN_OP_attention_paged;
#define FAILS(change, status, text) \
    a = good;                       \
    change;                         \
    op_test_fails(dev, op, &a, status, text)
    FAILS(a.q = (struct qrn_tensor){0}, QRN_ERR_ARGUMENT, "attention_paged: q is missing");
    FAILS(a.out = a.q, QRN_ERR_ARGUMENT, "out overlaps q");
    FAILS(a.out.shape[2] = 7, QRN_ERR_SHAPE, "out.shape[2] is 7, wants 8 (that of q)");
    FAILS(a.q.dtype = QRN_F16, QRN_ERR_DTYPE, "q is f16, wants f32");
    FAILS(a.n_kv_heads = 3, QRN_ERR_SHAPE, "4 heads and 3 kv heads, wants a multiple");
    FAILS(a.n_kv_heads = 0, QRN_ERR_SHAPE, "4 heads and 0 kv heads, wants a multiple");
    FAILS(a.scale = NAN, QRN_ERR_ARGUMENT, "scale is nan, wants a finite number");
    FAILS(a.softcap = -1, QRN_ERR_ARGUMENT, "softcap is -1, wants 0 or more");
    FAILS(a.acts = QRN_ACT_Q8, QRN_ERR_ARGUMENT, "acts is 1, wants 0 (f32) or 2 (bf16)");
    FAILS(a.window = -1, QRN_ERR_ARGUMENT, "window is -1, wants 0 or more");
    FAILS(a.kv_type = QRN_BF16, QRN_ERR_DTYPE, "kv_type is 2, wants f32 (0) or f16 (1)");
    FAILS(a.page_offset = 32, QRN_ERR_ARGUMENT,
          "page_offset is 32, wants a multiple of 64, 0 or more");
    FAILS(a.seq_begin.shape[0] = 2, QRN_ERR_SHAPE, "seq_begin.shape[0] is 2, wants 3");
    FAILS(a.pages.shape[0] = 1, QRN_ERR_SHAPE, "pages.shape[0] is 1, wants 2");
    FAILS(a.pages.dtype = QRN_I64, QRN_ERR_DTYPE, "pages is i64, wants address");
    FAILS(a.position.dtype = QRN_U32, QRN_ERR_DTYPE, "position is u32, wants i32");
    FAILS(c.seq_begin[0] = 1, QRN_ERR_ARGUMENT, "seq_begin[0] is 1, wants 0");
    c.seq_begin[0] = 0;
    FAILS(c.seq_begin[2] = 2, QRN_ERR_ARGUMENT, "seq_begin[2] is 2, wants 3 or more");
    FAILS(c.seq_begin[2] = 5, QRN_ERR_ARGUMENT, "seq_begin[2] is 5, wants the 4 tokens");
    c.seq_begin[2] = 4;
    FAILS(c.position[1] = -1, QRN_ERR_ARGUMENT, "position[1] is -1, wants 0 or more");
    FAILS(c.position[0] = 64 * MAX_PAGES - 2, QRN_ERR_LIMIT,
          "sequence 0 ends at position 2561, its 40 pages hold 2560");
    c.position[0] = 0;
    c.position[1] = 64;
    FAILS(c.table[1][0] = 0, QRN_ERR_ARGUMENT,
          "pages[1][0] is 0, wants an address, a multiple of 64");
    FAILS(c.table[1][0] = 0x1008, QRN_ERR_ARGUMENT, "pages[1][0] is 0x1008");
#undef FAILS
    assert_int_equal(qrn_kv_page_bytes(QRN_F16, 2, 256), 2 * 2 * 256 * 64 * 2);
    assert_int_equal(qrn_kv_page_bytes(QRN_BF16, 2, 256), 0);
    assert_int_equal(qrn_kv_page_bytes(QRN_F32, 0, 256), 0);
    assert_int_equal(qrn_kv_page_bytes(QRN_F32, INT64_MAX, INT64_MAX), 0);
    qrn_device_close(dev);
    mem_free_all(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference),    cmocka_unit_test(test_strided),
        cmocka_unit_test(test_bits),         cmocka_unit_test(test_bits_on_gpu),
        cmocka_unit_test(test_long),         cmocka_unit_test(test_long_bits),
        cmocka_unit_test(test_rounded),      cmocka_unit_test(test_rounded_slopes),
        cmocka_unit_test(test_missing_page), cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
