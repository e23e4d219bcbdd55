/* SPDX-License-Identifier: MIT
 * attention over plain buffers: every kernel against the reference; masks, classes, leaks, bits. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "ops/paged_cache.h"

enum layout { TOKENS_FIRST, HEADS_FIRST };
enum { NO_MASK = 0 };

struct shape {
    int64_t n_batch; /* 0: tensors of 3 dimensions */
    int64_t n_tokens, n_kv, n_heads, n_kv_heads, d_k, d_v;
    enum qrn_dtype kv_type;
    enum layout layout;
    bool causal;
    int64_t q_offset, window;
    int mask_dims;
    enum qrn_dtype mask_type;
    float softcap;
    double spread; /* of q: 4 makes the softmax nearly a choice */
    const char *why;
};

static const struct shape shapes[] = {
    {0, 1, 1, 1, 1, 1, 1, QRN_F32, TOKENS_FIRST, false, 0, 0, NO_MASK, 0, 0, 1, "smallest"},
    {0, 5, 70, 8, 2, 64, 64, QRN_F32, HEADS_FIRST, false, 0, 0, NO_MASK, 0, 0, 1,
     "all keys, 8:2 heads"},
    {0, 33, 33, 4, 2, 256, 256, QRN_F16, HEADS_FIRST, true, 0, 0, NO_MASK, 0, 0, 4,
     "prompt, sharp"},
    {0, 40, 1040, 2, 1, 64, 64, QRN_F32, HEADS_FIRST, true, 1000, 0, NO_MASK, 0, 0, 4,
     "offset 1000"},
    {0, 50, 64, 2, 2, 96, 96, QRN_BF16, TOKENS_FIRST, true, 14, 0, NO_MASK, 0, 0, 1,
     "bf16, offset"},
    {0, 32, 50, 2, 2, 128, 128, QRN_F32, TOKENS_FIRST, true, 18, 7, NO_MASK, 0, 0, 1, "window 7"},
    {0, 70, 130, 2, 1, 20, 20, QRN_F16, HEADS_FIRST, true, 60, 64, NO_MASK, 0, 0, 1,
     "window of a block"},
    {0, 9, 200, 2, 1, 20, 20, QRN_F32, HEADS_FIRST, false, 100, 3, NO_MASK, 0, 0, 1,
     "window, not causal"},
    {0, 3, 9, 3, 1, 512, 512, QRN_F32, HEADS_FIRST, true, 6, 0, NO_MASK, 0, 20, 4,
     "512 wide, softcap"},
    {0, 17, 9, 2, 2, 64, 64, QRN_F32, HEADS_FIRST, true, -4, 0, NO_MASK, 0, 0, 1,
     "rows without keys"},
    {0, 6, 5, 2, 1, 24, 24, QRN_F32, TOKENS_FIRST, true, 70, 3, NO_MASK, 0, 0, 1,
     "window past all keys"},
    {0, 35, 150, 4, 2, 48, 48, QRN_F32, HEADS_FIRST, false, 0, 0, 2, QRN_F32, 0, 1,
     "mask for all heads"},
    {0, 35, 150, 4, 2, 48, 48, QRN_F16, HEADS_FIRST, true, 115, 0, 3, QRN_BF16, 0, 1,
     "mask per head"},
    {0, 8, 65, 4, 4, 32, 32, QRN_F32, TOKENS_FIRST, false, 0, 0, 2, QRN_F16, 30, 2,
     "f16 mask, softcap"},
    {2, 5, 67, 4, 2, 33, 33, QRN_F32, TOKENS_FIRST, true, 62, 0, 4, QRN_F32, 0, 1,
     "batch, mask for each"},
    {3, 33, 40, 2, 1, 16, 16, QRN_BF16, HEADS_FIRST, true, 7, 0, 2, QRN_BF16, 0, 1,
     "batch, one mask"},
    {0, 7, 100, 6, 2, 40, 72, QRN_F16, TOKENS_FIRST, false, 0, 0, NO_MASK, 0, 0, 1,
     "values of another width"},
    {0, 150, 300, 6, 2, 24, 40, QRN_F16, HEADS_FIRST, true, 150, 70, NO_MASK, 0, 0, 1,
     "units over several class tiles"},
    {0, 70, 200, 3, 1, 17, 19, QRN_BF16, TOKENS_FIRST, true, 130, 0, 2, QRN_F32, 0, 1,
     "one mask for a group"},
    {0, 1, 1500, 6, 1, 40, 24, QRN_F16, HEADS_FIRST, true, 1499, 0, NO_MASK, 0, 0, 1,
     "one unit for all lanes"},
    {0, 3, 1000, 140, 1, 8, 8, QRN_F32, HEADS_FIRST, false, 0, 0, NO_MASK, 0, 0, 1,
     "a group larger than a unit"},
    {0, 40, 600, 6, 2, 64, 64, QRN_F16, HEADS_FIRST, true, 560, 300, NO_MASK, 0, 0, 2,
     "halves, a window over runs"},
    {2, 21, 330, 4, 1, 128, 128, QRN_F16, TOKENS_FIRST, true, 309, 0, 2, QRN_F32, 20, 1,
     "halves, batch, one mask, softcap"},
    {0, 1, 1100, 8, 1, 256, 256, QRN_F16, HEADS_FIRST, true, 1099, 0, NO_MASK, 0, 0, 1,
     "halves, one query"},
    {0, 2, 0, 2, 1, 8, 8, QRN_F32, TOKENS_FIRST, false, 0, 0, NO_MASK, 0, 0, 1, "no keys: zeros"},
    {0, 0, 4, 2, 1, 8, 8, QRN_F32, TOKENS_FIRST, false, 0, 0, NO_MASK, 0, 0, 1, "no queries"},
};

static void set(const struct qrn_tensor *t, int64_t i, float x)
{
    if (t->dtype == QRN_F32) ((float *)t->data)[i] = x;
    if (t->dtype == QRN_F16) ((uint16_t *)t->data)[i] = qrn_float_to_f16(x);
    if (t->dtype == QRN_BF16) ((uint16_t *)t->data)[i] = qrn_float_to_bf16(x);
}

/* [(n_batch,) n_tokens, n_heads, d] of random values in the memory order that layout says. */
static struct qrn_tensor random_heads(struct mem *m, struct rng *r, const struct shape *s,
                                      enum qrn_dtype type, double spread, int64_t n_tokens,
                                      int64_t n_heads, int64_t d)
{
    const bool outer = s->layout == HEADS_FIRST;
    const int64_t n_batch = s->n_batch ? s->n_batch : 1;
    const int64_t shape[] = {n_batch, outer ? n_heads : n_tokens, outer ? n_tokens : n_heads, d};
    struct qrn_tensor t = mem_tensor(m, type, 4, shape);
    for (int64_t i = 0; i < n_batch * n_tokens * n_heads * d; i++)
        set(&t, i, (float)(rng_normal(r) * spread));
    if (outer) {
        const int64_t stride = t.stride[1];
        t.shape[1] = n_tokens;
        t.shape[2] = n_heads;
        t.stride[1] = t.stride[2];
        t.stride[2] = stride;
    }
    if (s->n_batch) return t;
    for (int i = 0; i < 3; i++) {
        t.shape[i] = t.shape[i + 1];
        t.stride[i] = t.stride[i + 1];
    }
    t.n_dims = 3;
    return t;
}

/* Every kind of masking, and rows 1, 4, 7 ... without any key; key 0 is kept elsewhere. */
static struct qrn_tensor random_mask(struct mem *m, struct rng *r, const struct shape *s)
{
    const int64_t full[] = {s->n_batch, s->n_heads, s->n_tokens, s->n_kv};
    const struct qrn_tensor t = mem_tensor(m, s->mask_type, s->mask_dims, full + 4 - s->mask_dims);
    for (int64_t i = 0; i < qrn_tensor_n_elements(&t); i++) {
        const int64_t row = i / s->n_kv, kind = rng_below(r, 10);
        float x = kind < 5 ? 0.0f : (float)rng_normal(r);
        if (i % s->n_kv && kind == 7) x = -65504.0f;
        if (i % s->n_kv && kind == 8) x = s->mask_type == QRN_F16 ? -INFINITY : -1e30f;
        if ((i % s->n_kv && kind == 9) || row % 3 == 1) x = -INFINITY;
        set(&t, i, x);
    }
    return t;
}

static struct qrn_attention_args make(struct mem *m, struct rng *r, const struct shape *s)
{
    struct qrn_attention_args a = {
        .q = random_heads(m, r, s, QRN_F32, s->spread, s->n_tokens, s->n_heads, s->d_k),
        .k = random_heads(m, r, s, s->kv_type, 1.0, s->n_kv, s->n_kv_heads, s->d_k),
        .v = random_heads(m, r, s, s->kv_type, 1.0, s->n_kv, s->n_kv_heads, s->d_v),
        .out = random_heads(m, r, s, QRN_F32, 1.0, s->n_tokens, s->n_heads, s->d_v),
        .scale = 1.0f / sqrtf((float)s->d_k),
        .softcap = s->softcap,
        .causal = s->causal,
        .q_offset = s->q_offset,
        .window = s->window,
    };
    if (s->mask_dims) a.mask = random_mask(m, r, s);
    return a;
}

/* Matrix units of a real GPU, which take halves, cut off what does not fit into a sum. */
static double tolerance_of(const struct shape *s)
{
    return op_test_gpu_is_real() && s->kv_type != QRN_F32 ? 4e-5 : 1e-5;
}

static void test_reference(void **state)
{
    (void)state;
    struct devices d;
    devices_open_for(&d, 2, QRN_OP_attention);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct mem m = {0};
        struct rng r = {i};
        const struct qrn_attention_args a = make(&m, &r, &shapes[i]);
        for (size_t j = 0; j < d.n; j++)
            op_test_against_reference(d.dev[j], QRN_OP_attention, &a,
                                      tolerance_of(&shapes[i]) * shapes[i].spread, shapes[i].why);
        op_test_same_bits(QRN_OP_attention, &a, shapes[i].why);
        mem_free_all(&m);
    }
    devices_close(&d);
}

/* The bytes of out, heads and tokens in the order of the shape. */
static float *run_copy(struct mem *m, struct qrn_device *dev, const struct qrn_attention_args *a)
{
    const int64_t n = qrn_tensor_n_elements(&a->out);
    float *copy = mem_guarded(m, (size_t)n * sizeof *copy + 4);
    call(dev, QRN_OP_attention, a);
    for (int64_t i = 0; i < n; i++) copy[i] = (float)qrn_ref_get_flat(&a->out, i);
    return copy;
}

/* Classes change no bit, whatever they are made from. */
static void test_classes(void **state)
{
    (void)state;
    struct devices d;
    devices_open_for(&d, 2, QRN_OP_attention);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const struct shape *s = &shapes[i];
        if (s->mask_dims > 2) continue;
        struct mem m = {0};
        struct rng r = {i};
        struct qrn_attention_args a = make(&m, &r, s);
        for (size_t j = 0; j < d.n; j++) {
            int64_t tile_q, tile_k;
            assert_int_equal(qrn_attention_tile(d.dev[j], &a, &tile_q, &tile_k, NULL), QRN_OK);
            a.classes = (struct qrn_tensor){0};
            const float *want = run_copy(&m, d.dev[j], &a);
            const int64_t tiles[] = {(s->n_tokens + tile_q - 1) / tile_q,
                                     (s->n_kv + tile_k - 1) / tile_k};
            const struct qrn_attention_classify_tiles_args c = {
                .mask = a.mask,
                .classes = mem_tensor(&m, QRN_U8, 2, tiles),
                .n_tokens = s->n_tokens,
                .n_kv = s->n_kv,
                .causal = s->causal,
                .q_offset = s->q_offset,
                .window = s->window,
                .tile_q = tile_q,
                .tile_k = tile_k,
            };
            call(d.dev[j], QRN_OP_attention_classify_tiles, &c);
            a.classes = c.classes;
            a.tile_q = tile_q;
            a.tile_k = tile_k;
            const float *got = run_copy(&m, d.dev[j], &a);
            assert_memory_equal(got, want, (size_t)qrn_tensor_n_elements(&a.out) * 4);
        }
        mem_free_all(&m);
    }
    devices_close(&d);
}

/* A tile of class 0 is not looked at, one of class 2 is taken without its mask. */
static void test_classes_are_used(void **state)
{
    (void)state;
    struct mem m = {0};
    struct rng r = {77};
    struct devices d;
    devices_open_for(&d, 1, QRN_OP_attention);
    const struct shape s = {0,     40, 140, 2, 1,       16, 16, QRN_F32,  TOKENS_FIRST,
                            false, 0,  0,   2, QRN_F32, 0,  1,  "classes"};
    struct qrn_attention_args a = make(&m, &r, &s);
    static const uint8_t classes[2][3] = {{2, 0, 0}, {0, 2, 0}};
    a.classes = mem_tensor(&m, QRN_U8, 2, (const int64_t[]){2, 3});
    memcpy(a.classes.data, classes, sizeof classes);
    for (int64_t i = 0; i < 40 * 140; i++) ((float *)a.mask.data)[i] = NAN;
    for (int64_t i = 0; i < 70 * 16; i++) ((float *)a.v.data)[(70 + i / 16) * 16 + i % 16] = 3.0f;
    a.tile_q = 32;
    a.tile_k = 64;
    for (size_t j = 0; j < d.n; j++) {
        const float *out = run_copy(&m, d.dev[j], &a);
        for (int64_t i = 0; i < 40 * 2 * 16; i++) assert_true(isfinite(out[i]));
        struct qrn_attention_args plain = a;
        plain.classes = plain.mask = (struct qrn_tensor){0};
        plain.k = qrn_tensor_slice(a.k, 0, 0, 64);
        plain.v = qrn_tensor_slice(a.v, 0, 0, 64);
        const float *want = run_copy(&m, d.dev[j], &plain);
        assert_memory_equal(out, want, 32 * 2 * 16 * sizeof *out);
    }
    devices_close(&d);
    mem_free_all(&m);
}

/* A query that stands at p has the same bits alone, with as many keys as it may see, as among
 * others. */
static void test_rows_alone(void **state)
{
    (void)state;
    struct mem m = {0};
    struct rng r = {11};
    struct devices d;
    devices_open_for(&d, 2, QRN_OP_attention);
    static const struct shape s = {0,    40,   1040, 4,       2, 40, 40, QRN_F16, HEADS_FIRST,
                                   true, 1000, 0,    NO_MASK, 0, 0,  2,  "rows"};
    const struct qrn_attention_args a = make(&m, &r, &s);
    for (size_t j = 0; j < d.n; j++) {
        const float *all = run_copy(&m, d.dev[j], &a);
        for (int64_t i = 0; i < 40; i++) {
            struct qrn_attention_args one = a;
            one.q = qrn_tensor_slice(a.q, 0, i, 1);
            one.out = qrn_tensor_slice(a.out, 0, i, 1);
            one.k = qrn_tensor_slice(a.k, 0, 0, 1001 + i);
            one.v = qrn_tensor_slice(a.v, 0, 0, 1001 + i);
            one.q_offset = 1000 + i;
            one.causal = i % 2; /* at the end of its keys causal says nothing */
            const float *row = run_copy(&m, d.dev[j], &one);
            if (memcmp(row, all + i * 4 * 40, 4 * 40 * 4) != 0)
                fail_msg("%s: row %d differs", qrn_device_bits(d.dev[j]), (int)i);
        }
    }
    devices_close(&d);
    mem_free_all(&m);
}

/* What is not attended to may be anything: beyond the causal limit; before the window; under a
 * mask; or attended to by later rows alone. */
static void garbage(enum qrn_dtype type, int64_t width, int how, enum qrn_activation_type acts)
{
    enum { N = 10, N_KV = 200 };
    struct mem m = {0};
    struct devices d;
    struct rng r = {(uint64_t)how};
    const struct shape s = {.n_tokens = N,
                            .n_kv = N_KV,
                            .n_heads = 2,
                            .n_kv_heads = 1,
                            .d_k = width,
                            .d_v = width,
                            .kv_type = type,
                            .layout = TOKENS_FIRST,
                            .causal = how != 2,
                            .q_offset = 120,
                            .window = how == 1 ? 5 : 0,
                            .mask_dims = how == 2 ? 2 : NO_MASK,
                            .mask_type = QRN_F32,
                            .spread = 1};
    struct qrn_attention_args a = make(&m, &r, &s);
    a.acts = acts;
    const int64_t from = how == 1 ? 116 : how == 2 ? 70 : 0, to = how == 3 ? 125 : 130;
    const int64_t n_rows = how == 3 ? 5 : N;
    for (int64_t i = 0; i < N && how == 2; i++)
        for (int64_t j = 0; j < N_KV; j++)
            ((float *)a.mask.data)[i * N_KV + j] = j < from || j >= to ? -INFINITY : 0.0f;
    devices_open_for(&d, 1, QRN_OP_attention);
    for (size_t j = 0; j < d.n; j++) {
        const float *out[2];
        for (int bad = 0; bad < 2; bad++) {
            for (int64_t i = 0; i < N_KV * width; i++) {
                const float x = !bad ? 1.0f : i % 2 ? NAN : INFINITY;
                if (i / width >= from && i / width < to) continue;
                set(&a.k, i, x);
                set(&a.v, i, x);
            }
            out[bad] = run_copy(&m, d.dev[j], &a);
        }
        for (int64_t i = 0; i < n_rows * 2 * width; i++) assert_true(isfinite(out[1][i]));
        assert_memory_equal(out[1], out[0], (size_t)(n_rows * 2 * width) * sizeof(float));
    }
    devices_close(&d);
    mem_free_all(&m);
}

static void test_garbage(void **state)
{
    (void)state;
    for (int how = 0; how < 4; how++) {
        garbage(QRN_F32, 20, how, QRN_ACT_F32);
        garbage(QRN_F16, 64, how, QRN_ACT_F32);
        garbage(QRN_F16, 64, how, QRN_ACT_BF16);
        garbage(QRN_BF16, 256, how, QRN_ACT_BF16);
    }
}

/* The paged form and this one are the same sums. */
static void test_same_as_paged(void **state)
{
    (void)state;
    struct devices d;
    devices_open_for(&d, 2, QRN_OP_attention);
    for (int half = 0; half < 2; half++) {
        struct mem m = {0};
        struct rng r = {21};
        struct paged_cache c;
        cache_init(&m, &c, half ? QRN_F16 : QRN_F32, 1, 2, 72);
        const int64_t all = cache_step(&c, (const int64_t[]){0}, (const int64_t[]){230});
        const int64_t kv[] = {all, 2, 72}, q[] = {30, 6, 72}, cache[] = {2, all, 72};
        const struct qrn_kv_append_paged_args append =
            cache_append(&c, mem_filled(&m, &r, 1.0, 3, kv), mem_filled(&m, &r, 1.0, 3, kv));
        call(d.dev[0], QRN_OP_kv_append_paged, &append);
        int32_t zero = 0;
        const struct qrn_kv_append_args flat = {
            .k = append.k,
            .v = append.v,
            .position = qrn_tensor_1d(QRN_I32, &zero, 1),
            .cache_k = mem_tensor(&m, c.kv_type, 3, cache),
            .cache_v = mem_tensor(&m, c.kv_type, 3, cache),
        };
        call(d.dev[0], QRN_OP_kv_append, &flat);
        cache_step(&c, (const int64_t[]){200}, (const int64_t[]){30});
        struct qrn_attention_paged_args paged =
            cache_attend(&c, mem_filled(&m, &r, 1.0, 3, q), mem_tensor(&m, QRN_F32, 3, q), 0.1f);
        struct qrn_attention_args a = {
            .q = paged.q,
            .k = flat.cache_k,
            .v = flat.cache_v,
            .out = mem_tensor(&m, QRN_F32, 3, q),
            .scale = 0.1f,
            .causal = true,
            .q_offset = 200,
        };
        struct qrn_tensor *const views[] = {&a.k, &a.v};
        for (int i = 0; i < 2; i++) { /* [heads, tokens, d] seen as [tokens, heads, d] */
            const int64_t heads = views[i]->stride[0];
            views[i]->shape[0] = all;
            views[i]->shape[1] = 2;
            views[i]->stride[0] = views[i]->stride[1];
            views[i]->stride[1] = heads;
        }
        for (size_t j = 0; j < d.n; j++) {
            call(d.dev[j], QRN_OP_attention_paged, &paged);
            call(d.dev[j], QRN_OP_attention, &a);
            assert_memory_equal(a.out.data, paged.out.data, 30 * 6 * 72 * 4);
        }
        mem_free_all(&m);
    }
    devices_close(&d);
}

/* --- rounded queries and weights --- */

static const struct shape rounded[] = {
    {0, 130, 130, 1, 1, 64, 64, QRN_F16, TOKENS_FIRST, true, 0, 0, NO_MASK, 0, 0, 1,
     "two rows in the second tile"},
    {0, 20, 300, 8, 2, 256, 256, QRN_BF16, HEADS_FIRST, true, 280, 0, NO_MASK, 0, 0, 1,
     "groups of four, a past"},
    {0, 20, 150, 8, 1, 256, 256, QRN_F16, TOKENS_FIRST, false, 0, 0, NO_MASK, 0, 0, 1,
     "a group of eight, all keys"},
    {0, 20, 129, 12, 1, 128, 128, QRN_F16, HEADS_FIRST, true, 109, 0, NO_MASK, 0, 0, 1,
     "a group of twelve, one key past a block"},
    {0, 100, 400, 4, 2, 128, 128, QRN_BF16, HEADS_FIRST, true, 300, 100, NO_MASK, 0, 0, 1,
     "window of 100"},
    {0, 150, 150, 2, 2, 64, 64, QRN_F16, HEADS_FIRST, true, 0, 64, NO_MASK, 0, 0, 1,
     "window of 64"},
    {0, 65, 257, 2, 1, 256, 256, QRN_F16, TOKENS_FIRST, true, 192, 0, NO_MASK, 0, 0, 4, "sharp"},
    {2, 33, 90, 4, 2, 64, 64, QRN_BF16, HEADS_FIRST, true, 57, 0, NO_MASK, 0, 0, 1, "batch"},
    {70, 10, 40, 4, 2, 64, 64, QRN_F16, HEADS_FIRST, true, 30, 0, NO_MASK, 0, 0, 1,
     "tiles of a block of keys, more than multiprocessors"},
    {0, 60, 40, 1, 1, 128, 128, QRN_F16, HEADS_FIRST, true, -20, 0, NO_MASK, 0, 0, 1,
     "rows without keys"},
    {0, 30, 200, 1, 1, 64, 64, QRN_F16, HEADS_FIRST, false, 100, 3, NO_MASK, 0, 0, 1,
     "window, not causal"},
    {0, 30, 20, 1, 1, 64, 64, QRN_BF16, HEADS_FIRST, true, 70, 3, NO_MASK, 0, 0, 1,
     "window past all keys"},
    {0, 128, 128, 1, 1, 256, 256, QRN_BF16, TOKENS_FIRST, true, 0, 0, NO_MASK, 0, 0, 1,
     "whole tiles"},
};

/* The kernel that a call gets rounds, or not; where the device has one that does. */
static void chosen(struct qrn_device *dev, const struct qrn_attention_args *a, bool rounds)
{
    const struct qrn_kernel *k;
    bool has = false;
    for (size_t i = 0; (k = qrn_kernel_at(dev, QRN_OP_attention, i)) != NULL; i++)
        has = has || strstr(k->name, ".wgmma");
    assert_int_equal(qrn_kernel_choose(dev, QRN_OP_attention, a, &k, NULL), QRN_OK);
    assert_true(!!strstr(k->name, ".wgmma") == (has && rounds));
}

static void round_case(struct qrn_device *dev, const struct shape *s, uint64_t seed, bool same_bits)
{
    struct mem m = {0};
    struct rng r = {seed};
    struct qrn_attention_args a = make(&m, &r, s);
    chosen(dev, &a, false);
    a.acts = QRN_ACT_BF16;
    chosen(dev, &a, true);
    const double tolerance = (s->kv_type == QRN_F16 ? 4e-3 : 2e-2) * s->spread;
    op_test_against_reference(dev, QRN_OP_attention, &a, tolerance, s->why);
    if (same_bits) op_test_same_bits(QRN_OP_attention, &a, s->why);
    mem_free_all(&m);
}

/* Products are of numbers of 11 or 8 bits. */
static void test_rounded(void **state)
{
    (void)state;
    struct devices d;
    devices_open_for(&d, 2, QRN_OP_attention);
    for (size_t i = 0; i < sizeof rounded / sizeof *rounded; i++)
        round_case(d.dev[d.n - 1], &rounded[i], i, i == 1);
    devices_close(&d);
}

/* The last d elements of rows of gap + d. */
static struct qrn_tensor apart(struct mem *m, struct rng *r, const struct shape *s, int64_t d,
                               int64_t gap)
{
    struct qrn_tensor t =
        random_heads(m, r, s, QRN_F32, s->spread, s->n_tokens, s->n_heads, gap + d);
    t.shape[t.n_dims - 1] = d;
    t.data = (float *)t.data + gap;
    t.n_bytes -= (size_t)gap * sizeof(float);
    return t;
}

/* Queries and results whose rows do not begin at 16 bytes: q alone, out alone, both at 8
 * bytes. */
static void test_rounded_unaligned(void **state)
{
    static const struct shape some[] = {{0, 20, 300, 8, 2, 256, 256, QRN_BF16, HEADS_FIRST, true,
                                         280, 0, NO_MASK, 0, 0, 1, "256, unaligned"},
                                        {0, 20, 129, 12, 1, 128, 128, QRN_F16, TOKENS_FIRST, true,
                                         109, 0, NO_MASK, 0, 0, 1, "128, unaligned"},
                                        {0, 150, 150, 2, 2, 64, 64, QRN_F16, HEADS_FIRST, true, 0,
                                         64, NO_MASK, 0, 0, 1, "64, unaligned"}};
    static const int64_t gaps[][2] = {{3, 0}, {0, 3}, {2, 2}};
    (void)state;
    struct devices d;
    devices_open_for(&d, 2, QRN_OP_attention);
    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        for (size_t j = 0; j < sizeof gaps / sizeof *gaps; j++) {
            struct mem m = {0};
            struct rng r = {i};
            struct qrn_attention_args a = make(&m, &r, &some[i]);
            if (gaps[j][0]) a.q = apart(&m, &r, &some[i], some[i].d_k, gaps[j][0]);
            if (gaps[j][1]) a.out = apart(&m, &r, &some[i], some[i].d_v, gaps[j][1]);
            a.acts = QRN_ACT_BF16;
            chosen(d.dev[d.n - 1], &a, true);
            op_test_against_reference(d.dev[d.n - 1], QRN_OP_attention, &a,
                                      some[i].kv_type == QRN_F16 ? 4e-3 : 2e-2, some[i].why);
            mem_free_all(&m);
        }
    devices_close(&d);
}

/* One that brings keys, values or queries, or multiplies, where a block goes through many tiles of
 * one or two blocks of keys. */
static void test_rounded_slow_warps(void **state)
{
    static const char *const warps[] = {"-1", "0", "1", "2", "4", "8"};
    static const struct shape some[] = {{2, 33, 90, 4, 2, 64, 64, QRN_BF16, HEADS_FIRST, true, 57,
                                         0, NO_MASK, 0, 0, 1, "slow warp"},
                                        {0, 100, 100, 8, 1, 256, 256, QRN_F16, TOKENS_FIRST, true,
                                         0, 70, NO_MASK, 0, 0, 1, "slow warp, window"}};
    (void)state;
    assert_int_equal(setenv("QRN_EMULATED_MULTIPROCESSORS", "1", 1), 0);
    for (size_t i = 0; i < sizeof warps / sizeof *warps; i++) {
        struct devices d;
        assert_int_equal(setenv("QRN_EMULATED_SLOW_WARP", warps[i], 1), 0);
        devices_open_for(&d, 1, QRN_OP_attention);
        for (size_t j = 0; j < sizeof some / sizeof *some; j++)
            round_case(d.dev[d.n - 1], &some[j], j, false);
        devices_close(&d);
    }
    assert_int_equal(unsetenv("QRN_EMULATED_SLOW_WARP"), 0);
    assert_int_equal(unsetenv("QRN_EMULATED_MULTIPROCESSORS"), 0);
}

/* A value that is not finite reaches the rows that attend to it, and no other. */
static void test_rounded_bad_values(void **state)
{
    (void)state;
    enum { N = 100, BAD = 77, COLUMN = 9, D = 64 };
    static const struct shape s = {0,    N, N, 1,       1, D, D, QRN_F16,     TOKENS_FIRST,
                                   true, 0, 0, NO_MASK, 0, 0, 1, "bad values"};
    struct mem m = {0};
    struct rng r = {3};
    struct devices d;
    devices_open_for(&d, 1, QRN_OP_attention);
    struct qrn_attention_args a = make(&m, &r, &s);
    a.acts = QRN_ACT_BF16;
    set(&a.v, BAD * D + COLUMN, INFINITY);
    set(&a.v, BAD * D + COLUMN + 1, NAN);
    for (size_t j = 0; j < d.n; j++) {
        const float *out = run_copy(&m, d.dev[j], &a);
        for (int i = 0; i < N * D; i++) {
            const bool bad = i / D >= BAD && (i % D == COLUMN || i % D == COLUMN + 1);
            assert_true(!isfinite(out[i]) == bad);
            if (bad) assert_true(!!isnan(out[i]) == (i % D != COLUMN));
        }
    }
    devices_close(&d);
    mem_free_all(&m);
}

static void test_errors(void **state)
{
    (void)state;
    struct mem m = {0};
    struct rng r = {5};
    struct qrn_device *dev;
    assert_int_equal(qrn_device_open(NULL, &dev, NULL), QRN_OK);
    const struct shape s = {0,    5,  70, 4, 2,       8, 8, QRN_F32, TOKENS_FIRST,
                            true, 65, 0,  2, QRN_F32, 0, 1, ""};
    struct qrn_attention_args good = make(&m, &r, &s), a;
    uint8_t classes[] = {1, 1};
#define FAILS(change, status, text) \
    a = good;                       \
    change;                         \
    op_test_fails(dev, QRN_OP_attention, &a, status, text)
    FAILS(a.k = (struct qrn_tensor){0}, QRN_ERR_ARGUMENT, "attention: k is missing");
    FAILS(a.q.dtype = QRN_F16, QRN_ERR_DTYPE, "q is f16, wants f32");
    FAILS(a.k.dtype = QRN_I32, QRN_ERR_DTYPE, "k is i32, wants f32 or f16 or bf16");
    FAILS(a.v.dtype = QRN_F16, QRN_ERR_DTYPE, "v is f16, wants f32");
    FAILS(a.k.shape[2] = 7, QRN_ERR_SHAPE, "k.shape[2] is 7, wants 8");
    FAILS(a.v.shape[0] = 69, QRN_ERR_SHAPE, "v.shape[0] is 69, wants 70");
    FAILS((a.k.shape[1] = 1, a.v.shape[1] = 1, a.q.shape[1] = 3, a.out.shape[1] = 2), QRN_ERR_SHAPE,
          "out.shape[1] is 2, wants 3");
    FAILS(a.q.shape[1] = 3, QRN_ERR_SHAPE, "3 heads and 2 kv heads, wants a multiple");
    FAILS(a.out.shape[2] = 7, QRN_ERR_SHAPE, "out.shape[2] is 7, wants 8");
    FAILS(a.mask.shape[1] = 69, QRN_ERR_SHAPE, "mask.shape[1] is 69, wants 70");
    FAILS((a.mask.n_dims = 1, a.mask.stride[0] = 1), QRN_ERR_SHAPE,
          "mask has 1 dimensions, wants 2 to 3");
    FAILS(a.scale = INFINITY, QRN_ERR_ARGUMENT, "scale is inf, wants a finite number");
    FAILS(a.softcap = -2, QRN_ERR_ARGUMENT, "softcap is -2, wants 0 or more");
    FAILS(a.window = -1, QRN_ERR_ARGUMENT, "window is -1, wants 0 or more");
    FAILS(a.q_offset = INT64_MAX, QRN_ERR_ARGUMENT,
          "q_offset is 9223372036854775807, wants -2^40 to 2^40");
    FAILS(a.acts = QRN_ACT_Q8, QRN_ERR_ARGUMENT, "acts is 1, wants 0 (f32) or 2 (bf16)");
    FAILS(a.out = a.q, QRN_ERR_ARGUMENT, "out overlaps q");
    good.classes = qrn_tensor_2d(QRN_U8, classes, 1, 2);
    good.tile_q = 32;
    good.tile_k = 64;
    FAILS(a.tile_q = 8, QRN_ERR_ARGUMENT,
          "classes are of tiles [8, 64], the kernel wants [32, 64]");
    FAILS(a.classes.shape[1] = 1, QRN_ERR_SHAPE, "classes.shape[1] is 1, wants 2");
    FAILS(a.classes.dtype = QRN_I8, QRN_ERR_DTYPE, "classes is i8, wants u8");
    FAILS((a.mask.n_dims = 3, a.mask.shape[2] = 70, a.mask.shape[1] = 5, a.mask.shape[0] = 4,
           a.mask.stride[0] = a.mask.stride[1] = 0, a.mask.stride[2] = 1),
          QRN_ERR_SHAPE, "mask has 3 dimensions, wants 2 beside classes");
#undef FAILS
    struct qrn_error err;
    int64_t tile_q, tile_k;
    a = good;
    a.q.shape[2] = 9;
    assert_int_equal(qrn_attention_tile(dev, &a, &tile_q, &tile_k, &err), QRN_ERR_SHAPE);
    assert_non_null(strstr(err.text, "k.shape[2] is 8, wants 9"));
    a = good;
    a.v.dtype = (enum qrn_dtype)999;
    assert_int_equal(qrn_attention_tile(dev, &a, &tile_q, &tile_k, &err), QRN_ERR_DTYPE);
    assert_non_null(strstr(err.text, "v.dtype is 999, which is no type"));
    qrn_device_close(dev);
    mem_free_all(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference),
        cmocka_unit_test(test_classes),
        cmocka_unit_test(test_classes_are_used),
        cmocka_unit_test(test_rows_alone),
        cmocka_unit_test(test_garbage),
        cmocka_unit_test(test_same_as_paged),
        cmocka_unit_test(test_rounded),
        cmocka_unit_test(test_rounded_unaligned),
        cmocka_unit_test(test_rounded_slow_warps),
        cmocka_unit_test(test_rounded_bad_values),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
