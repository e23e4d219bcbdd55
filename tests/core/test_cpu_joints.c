/* SPDX-License-Identifier: MIT
 * Joints of the CPU: a product whose outputs are gates and ups, and silu_mul of both, recorded together, leave what they leave
 * one after the other, to the bit, and the product's own output is never written. */
#include <string.h>

#include "support/weights.h"

enum oddity {
    NONE,
    IN_PLACE, /* the middle takes the gates' place */
    FLOATS,   /* x is rounded by the product */
    KEEPS,    /* gates and ups are read again: no joint */
    SWAPPED,  /* ups come first: no joint */
    COPY,     /* gates are another tensor: no joint */
    OVER_X,   /* the middle lies where x is: no joint */
    BETWEEN,  /* another op between them: no joint */
    BEFORE,   /* another op before them, which they need not wait for: no joint */
    BATCHES   /* two matrices, each with its rows: no joint */
};

struct row {
    enum qrn_dtype weights;
    int64_t n_rows, d, k; /* d: gates, and ups */
    enum qrn_dtype middle;
    enum oddity oddity;
    int n_threads;
    bool joined;
};

static const struct row rows[] = {
    {QRN_Q4_0, 64, 768, 256, QRN_Q8_ACT, NONE, 1, true},
    {QRN_Q4_0, 66, 1536, 1056, QRN_Q8_ACT, NONE, 2, true},
    {QRN_Q4_K, 533, 1664, 768, QRN_Q8_ACT, NONE, 2, true},
    {QRN_Q6_K, 100, 2304, 512, QRN_BF16, NONE, 3, true},
    {QRN_Q8_0, 1100, 768, 160, QRN_F32, NONE, 1, true},
    {QRN_Q4_1, 65, 1536, 544, QRN_F32, NONE, 2, true},
    {QRN_Q5_0, 72, 1536, 32, QRN_Q8_ACT, NONE, 2, true},
    {QRN_Q2_K, 67, 1536, 256, QRN_Q8_ACT, NONE, 2, true},
    {QRN_IQ4_XS, 70, 1536, 256, QRN_Q8_ACT, NONE, 2, true},
    {QRN_MXFP4, 70, 1536, 288, QRN_Q8_ACT, NONE, 2, true},
    {QRN_MLX_Q4, 70, 1536, 256, QRN_Q8_ACT, NONE, 2, true},
    {QRN_Q4_K, 70, 1536, 512, QRN_F32, IN_PLACE, 2, true},
    {QRN_Q4_0, 70, 1536, 544, QRN_Q8_ACT, FLOATS, 2, true},
    {QRN_Q4_K, 70, 1536, 512, QRN_Q8_ACT, KEEPS, 2, false},
    {QRN_Q4_K, 70, 1536, 512, QRN_Q8_ACT, SWAPPED, 2, false},
    {QRN_Q4_K, 70, 1536, 512, QRN_Q8_ACT, COPY, 2, false},
    {QRN_Q4_K, 70, 1536, 1536, QRN_F32, OVER_X, 2, false},
    {QRN_Q4_K, 70, 1536, 512, QRN_Q8_ACT, BETWEEN, 2, false},
    {QRN_Q4_K, 70, 1536, 512, QRN_Q8_ACT, BEFORE, 2, false},
    {QRN_Q4_K, 70, 1536, 512, QRN_Q8_ACT, BATCHES, 2, false},
    {QRN_Q4_K, 8, 1536, 512, QRN_Q8_ACT, NONE, 2, false},  /* rows that are no prompt */
    {QRN_Q4_0, 70, 1408, 512, QRN_Q8_ACT, NONE, 2, false}, /* too few turns */
    {QRN_Q4_0, 70, 1536, 512, QRN_Q8_ACT, NONE, 3, false}, /* for so many lanes */
    {QRN_Q4_0, 70, 1600, 512, QRN_F32, NONE, 2, false},    /* half a block of gates */
};

/* What a case records, and what it may write. */
struct call {
    struct qrn_cast_args round;
    struct qrn_matmul_args product;
    struct qrn_mul_args other; /* x absent: none */
    struct qrn_silu_mul_args silu;
    struct qrn_tensor written[3];
};

static struct qrn_tensor like(struct mem *m, enum qrn_dtype dtype, int64_t batches, int64_t n_rows,
                              int64_t n)
{
    return batches == 1 ? mem_tensor(m, dtype, 2, (const int64_t[]){n_rows, n})
                        : mem_tensor(m, dtype, 3, (const int64_t[]){batches, n_rows, n});
}

static void make(struct mem *m, struct rng *r, struct qrn_device *dev, const struct row *z,
                 struct call *c)
{
    const int64_t batches = z->oddity == BATCHES ? 2 : 1, shape[] = {batches, 2 * z->d, z->k};
    const struct weights w = random_weights(m, r, weight_type_of(z->weights), batches == 1 ? 2 : 3,
                                            shape + (batches == 1), 32, QRN_F16);
    struct qrn_tensor x = like(m, QRN_F32, batches, z->n_rows, z->k);
    for (int64_t i = 0; i < batches * z->n_rows * z->k; i++)
        ((float *)x.data)[i] = (float)rng_normal(r);
    const bool floats = z->oddity == FLOATS || z->oddity == OVER_X || z->k % QRN_Q8_ACT_BLOCK;
    const struct qrn_tensor rounded =
                                like(m, floats ? QRN_F32 : QRN_Q8_ACT, batches, z->n_rows, z->k),
                            out = like(m, QRN_F32, batches, z->n_rows, 2 * z->d);
    const int last = out.n_dims - 1;
    const struct qrn_tensor first = qrn_tensor_slice(out, last, 0, z->d),
                            second = qrn_tensor_slice(out, last, z->d, z->d);
    *c = (struct call){
        .round = {.x = x, .out = rounded},
        .product = {.w = pack_weights(m, dev, &w, QRN_ACT_Q8),
                    .x = rounded,
                    .out = out,
                    .activation = QRN_ACT_Q8,
                    .layout = QRN_LAYOUT_PACKED},
        .silu = {.gate = first, .up = second, .drops_inputs = z->oddity != KEEPS},
        .written = {rounded, out},
    };
    if (z->oddity == SWAPPED) c->silu.gate = second, c->silu.up = first;
    if (z->oddity == COPY)
        c->silu.gate = x.shape[last] == z->d
                           ? x
                           : mem_filled(m, r, 1.0, 2, (const int64_t[]){z->n_rows, z->d});
    if (z->oddity == BETWEEN || z->oddity == BEFORE)
        c->other =
            (struct qrn_mul_args){.x = x, .y = x, .out = like(m, QRN_F32, 1, z->n_rows, z->k)};
    c->silu.out = z->oddity == IN_PLACE ? first
                  : z->oddity == OVER_X ? rounded
                                        : like(m, z->middle, batches, z->n_rows, z->d);
    c->written[2] = c->silu.out;
}

static void poison(const struct call *c)
{
    for (int i = 0; i < 3; i++)
        if (c->written[i].n_bytes) memset(c->written[i].data, 0xff, c->written[i].n_bytes);
}

/* The middle, row after row, and whether the product's columns from `from` on were left alone. */
static char *middle_of(struct mem *m, const struct call *c, int64_t from, bool *untouched)
{
    const struct qrn_tensor *t = &c->silu.out, *out = &c->product.out;
    const size_t row = (size_t)qrn_block_offset(t->dtype, t->shape[t->n_dims - 1]);
    const int64_t n_rows = qrn_tensor_n_elements(t) / t->shape[t->n_dims - 1],
                  n = out->shape[out->n_dims - 1];
    char *copy = mem_guarded(m, row * (size_t)n_rows);
    *untouched = true;
    for (int64_t r = 0; r < n_rows; r++) {
        const uint32_t *products = (const uint32_t *)out->data + r * n;
        memcpy(copy + row * (size_t)r,
               (const char *)t->data + qrn_block_offset(t->dtype, r * t->stride[t->n_dims - 2]),
               row);
        for (int64_t i = from; i < n; i++) *untouched = *untouched && products[i] == UINT32_MAX;
    }
    return copy;
}

static bool can_join(struct qrn_device *dev, const struct call *c)
{
    const struct qrn_kernel *product, *silu;
    struct qrn_error err;
    assert_int_equal(qrn_kernel_choose(dev, QRN_OP_matmul, &c->product, &product, &err), QRN_OK);
    assert_int_equal(qrn_kernel_choose(dev, QRN_OP_silu_mul, &c->silu, &silu, &err), QRN_OK);
    return strcmp(silu->name, "cpu.silu_mul.avx512") == 0 &&
           (strcmp(product->name, "cpu.matmul.avx512vnni") == 0 ||
            strcmp(product->name, "cpu.matmul.amx_q8") == 0);
}

static void test_row(struct qrn_device *dev, const struct row *z, size_t i)
{
    struct mem m = {0};
    struct rng r = {i};
    struct call c;
    struct qrn_encoder *enc;
    struct qrn_error err = {0};
    bool untouched;
    make(&m, &r, dev, z, &c);
    if (!c.product.w.n_dims) {
        mem_free_all(&m);
        return;
    }
    assert_int_equal(qrn_encoder_create(dev, &enc, &err), QRN_OK);
    qrn_encode_cast(enc, &c.round);
    if (z->oddity == BEFORE) qrn_encode_mul(enc, &c.other);
    qrn_encode_matmul(enc, &c.product);
    if (z->oddity == BETWEEN) qrn_encode_mul(enc, &c.other);
    qrn_encode_silu_mul(enc, &c.silu);

    poison(&c);
    const int64_t from = z->oddity == IN_PLACE ? z->d : 0;
    for (size_t s = 0; s < qrn_encoder_n_ops(enc); s++)
        if (qrn_encoder_submit_range(enc, s, s + 1, &err) != QRN_OK)
            fail_msg("row %zu: %s", i, err.text);
    const char *want = middle_of(&m, &c, from, &untouched);
    assert_false(untouched);
    for (int turn = 0; turn < 2; turn++) {
        poison(&c);
        if (qrn_encoder_submit(enc, &err) != QRN_OK) fail_msg("row %zu: %s", i, err.text);
        const char *got = middle_of(&m, &c, from, &untouched);
        const size_t n_bytes =
            (size_t)qrn_block_offset(c.silu.out.dtype, qrn_tensor_n_elements(&c.silu.out));
        if (memcmp(want, got, n_bytes) != 0) fail_msg("row %zu: other bits", i);
        if (untouched != (z->joined && can_join(dev, &c)))
            fail_msg("row %zu: %s", i, untouched ? "joined" : "no joint");
    }
    qrn_encoder_destroy(enc);
    mem_free_all(&m);
}

static void test_rows(void **state)
{
    (void)state;
    for (int n_threads = 1; n_threads <= 3; n_threads++) {
        struct devices all;
        devices_open(&all, n_threads);
        for (size_t k = 0; k < all.n; k++)
            for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
                if (rows[i].n_threads == n_threads) test_row(all.dev[k], &rows[i], i);
        devices_close(&all);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows)};
    return cmocka_run_group_tests_name("cpu_joints", tests, NULL, NULL);
}
