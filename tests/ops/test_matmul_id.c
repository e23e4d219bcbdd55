/* SPDX-License-Identifier: MIT
 * matmul_id: every kernel against the reference; the bits of matmul with the chosen matrix, rows
 * and packed; ids that repeat, that nobody names, that are new in a replay; every documented
 * error. */
#include <stdio.h>

#include "support/weights.h"

static const struct {
    int64_t n_tokens, top_k, n_experts, n, k;
    bool own_x; /* x for each slot */
    const char *why;
} cases[] = {
    {1, 1, 1, 16, 256, false, "smallest"},
    {1, 4, 9, 37, 512, false, "decode"},
    {1, 4, 9, 37, 512, true, "decode, down projection"},
    {100, 3, 4, 21, 256, false, "many rows an expert"},
    {33, 2, 40, 19, 256, true, "experts without rows"},
    {0, 2, 3, 16, 256, false, "no tokens"},
    {5, 0, 3, 16, 256, false, "no experts chosen"},
};

static const enum qrn_dtype types[] = {QRN_F32,  QRN_BF16,  QRN_Q4_0,  QRN_Q4_K,
                                       QRN_Q6_K, QRN_IQ3_S, QRN_MLX_Q4};
enum { N_TYPES = sizeof types / sizeof *types, N_CASES = sizeof cases / sizeof *cases };

static size_t type_index(enum qrn_dtype dtype)
{
    size_t t = 0;
    while (weight_types[t].dtype != dtype) t++;
    return t;
}

static struct qrn_matmul_id_args make(struct mem *m, struct rng *r, enum qrn_dtype dtype, size_t c,
                                      bool q8)
{
    const int64_t n = cases[c].n, k = cases[c].k, e = cases[c].n_experts, top_k = cases[c].top_k;
    const struct weights w =
        random_weights(m, r, type_index(dtype), 3, (const int64_t[]){e, n, k}, 64, QRN_BF16);
    struct qrn_matmul_id_args a = {
        .w = w.w,
        .scales = w.scales,
        .biases = w.biases,
        .x = mem_filled(m, r, 1.0, 3,
                        (const int64_t[]){cases[c].n_tokens, cases[c].own_x ? top_k : 1, k}),
        .ids = mem_tensor(m, QRN_I32, 2, (const int64_t[]){cases[c].n_tokens, top_k}),
        .out = mem_tensor(m, QRN_F32, 3, (const int64_t[]){cases[c].n_tokens, top_k, n}),
        .activation = q8 ? QRN_ACT_Q8 : QRN_ACT_F32};
    int32_t *ids = a.ids.data;
    for (int64_t i = 0; i < cases[c].n_tokens * top_k; i++) ids[i] = (int32_t)rng_below(r, e);
    if (cases[c].n_tokens > 1 && top_k > 1) ids[0] = ids[1] = (int32_t)e - 1;
    return a;
}

static void test_reference(void **state)
{
    (void)state;
    struct devices d;
    devices_open_for(&d, 2, QRN_OP_matmul_id);
    for (size_t t = 0; t < N_TYPES; t++)
        for (size_t c = 0; c < N_CASES; c++)
            for (int q8 = 0; q8 < 2; q8++) {
                struct mem m = {0};
                struct rng r = {31 * t + c};
                const struct qrn_matmul_id_args a = make(&m, &r, types[t], c, q8);
                char what[128];
                snprintf(what, sizeof what, "%s, %s, %s", qrn_dtype_info(types[t])->name,
                         q8 ? "q8" : "f32", cases[c].why);
                /* float32 sums of 512 products at most */
                for (size_t i = 0; i < d.n; i++)
                    op_test_against_reference(d.dev[i], QRN_OP_matmul_id, &a, 1e-5, what);
                op_test_same_bits(QRN_OP_matmul_id, &a, what);
                mem_free_all(&m);
            }
    devices_close(&d);
}

/* The row of slot (t, j) by matmul with matrix ids[t][j]; on a GPU, which may be an emulated one, of some
 * slots. */
static void expect_matmul(struct qrn_device *dev, const struct qrn_matmul_id_args *a,
                          const struct qrn_matmul_id_args *rows, const char *what)
{
    const int64_t n = a->out.shape[2], top_k = a->ids.shape[1], n_x = a->x.shape[1];
    struct mem m = {0};
    float *want = mem_guarded(&m, (size_t)n * sizeof *want);
    const int64_t step = qrn_device_host_reads(dev) ? 1 : 11;
    for (int64_t s = 0; s < a->ids.shape[0] * top_k; s += step) {
        const int32_t id = ((const int32_t *)a->ids.data)[s];
        struct qrn_matmul_args one = {.activation = a->activation};
        const struct qrn_tensor *const from[] = {&rows->w, &rows->scales, &rows->biases};
        struct qrn_tensor *const to[] = {&one.w, &one.scales, &one.biases};
        for (int i = 0; i < 3; i++) {
            if (from[i]->n_dims == 0) continue;
            const struct qrn_tensor part = qrn_tensor_slice(*from[i], 0, id, 1);
            *to[i] = qrn_tensor_2d(part.dtype, part.data, part.shape[1], part.shape[2]);
        }
        const int64_t i_x = n_x > 1 ? s : s / top_k;
        one.x = qrn_tensor_2d(QRN_F32, (const float *)a->x.data + i_x * a->x.shape[2], 1,
                              a->x.shape[2]);
        one.out = qrn_tensor_2d(QRN_F32, want, 1, n);
        struct qrn_error err;
        if (qrn_matmul(dev, &one, &err) != QRN_OK) fail_msg("%s: %s", what, err.text);
        if (memcmp(want, (const float *)a->out.data + s * n, (size_t)n * sizeof *want) != 0)
            fail_msg("%s, %s: slot %d differs from matmul", qrn_device_bits(dev), what, (int)s);
    }
    mem_free_all(&m);
}

static void test_matmul_bits(void **state)
{
    (void)state;
    struct devices d;
    devices_open_for(&d, 3, QRN_OP_matmul_id);
    for (size_t t = 0; t < N_TYPES; t++)
        for (size_t c = 0; c < N_CASES; c++)
            for (int q8 = 0; q8 < 2; q8++)
                for (size_t i = 0; i < d.n; i++) {
                    struct mem m = {0};
                    struct rng r = {t + c};
                    struct qrn_error err;
                    size_t n_bytes;
                    const struct qrn_matmul_id_args rows = make(&m, &r, types[t], c, q8);
                    struct qrn_matmul_id_args a = rows;
                    if (qrn_matmul_id(d.dev[i], &a, &err) != QRN_OK) fail_msg("%s", err.text);
                    expect_matmul(d.dev[i], &a, &rows, cases[c].why);
                    struct qrn_matmul_pack_args p = {.w = a.w,
                                                     .scales = a.scales,
                                                     .biases = a.biases,
                                                     .activation = a.activation};
                    assert_int_equal(qrn_matmul_packed_bytes(d.dev[i], &p, &n_bytes, &err), QRN_OK);
                    if (n_bytes) {
                        p.packed =
                            qrn_tensor_1d(QRN_U8, mem_guarded(&m, n_bytes), (int64_t)n_bytes);
                        if (qrn_matmul_pack(d.dev[i], &p, &err) != QRN_OK) fail_msg("%s", err.text);
                        a.w.data = p.packed.data;
                        a.w.n_bytes = n_bytes;
                        a.scales = a.biases = (struct qrn_tensor){0};
                        a.layout = QRN_LAYOUT_PACKED;
                        memset(a.out.data, 0xff, a.out.n_bytes);
                        if (qrn_matmul_id(d.dev[i], &a, &err) != QRN_OK) fail_msg("%s", err.text);
                        expect_matmul(d.dev[i], &a, &rows, cases[c].why);
                    }
                    if (q8 && qrn_has_integer_form(types[t])) {
                        const struct qrn_cast_args cast = {
                            rows.x, mem_tensor(&m, QRN_Q8_ACT, 3, rows.x.shape)};
                        assert_int_equal(qrn_cast(d.dev[i], &cast, &err), QRN_OK);
                        a.x = cast.out;
                        memset(a.out.data, 0xff, a.out.n_bytes);
                        if (qrn_matmul_id(d.dev[i], &a, &err) != QRN_OK) fail_msg("%s", err.text);
                        a.x = rows.x;
                        expect_matmul(d.dev[i], &a, &rows, cases[c].why);
                    }
                    mem_free_all(&m);
                }
    devices_close(&d);
}

/* Ids change between two submits of one recording. */
static void test_replay(void **state)
{
    (void)state;
    struct mem m = {0};
    struct rng r = {1};
    struct qrn_device *dev;
    struct qrn_encoder *enc;
    struct qrn_error err;
    const struct qrn_matmul_id_args a = make(&m, &r, QRN_Q4_0, 3, true);
    assert_int_equal(qrn_device_open(NULL, &dev, NULL), QRN_OK);
    assert_int_equal(qrn_encoder_create(dev, &enc, NULL), QRN_OK);
    qrn_encode_matmul_id(enc, &a);
    for (int run = 0; run < 3; run++) {
        if (qrn_encoder_submit(enc, &err) != QRN_OK) fail_msg("%s", err.text);
        expect_matmul(dev, &a, &a, "replay");
        for (int i = 0; i < 70 * 3; i++) ((int32_t *)a.ids.data)[i] = (int32_t)rng_below(&r, 4);
    }
    ((int32_t *)a.ids.data)[17] = 4;
    assert_int_equal(qrn_encoder_submit(enc, &err), QRN_ERR_ARGUMENT);
    assert_string_equal(err.text, "matmul_id: id 17 is 4, wants 0 to 3");
    qrn_encoder_destroy(enc);
    qrn_device_close(dev);
    mem_free_all(&m);
}

static void test_errors(void **state)
{
    (void)state;
    struct mem m = {0};
    struct rng r = {5};
    struct qrn_device *dev;
    const enum qrn_op_id op = QRN_OP_matmul_id;
    assert_int_equal(qrn_device_open(NULL, &dev, NULL), QRN_OK);
    const struct qrn_matmul_id_args good = make(&m, &r, QRN_Q4_0, 4, true);
    struct qrn_matmul_id_args a = good;
    a.w = qrn_tensor_2d(QRN_Q4_0, a.w.data, 19, 256);
    op_test_fails(dev, op, &a, QRN_ERR_SHAPE, "matmul_id: w has 2 dimensions, wants 3");
    a = good;
    a.x.shape[2] = 128;
    op_test_fails(dev, op, &a, QRN_ERR_SHAPE, "matmul_id: x.shape[2] is 128, wants 256");
    a = good;
    a.ids.shape[0] = 32;
    op_test_fails(dev, op, &a, QRN_ERR_SHAPE, "matmul_id: ids.shape[0] is 32, wants 33");
    a = good;
    a.ids = qrn_tensor_2d(QRN_I32, good.ids.data, 33, 1);
    op_test_fails(dev, op, &a, QRN_ERR_SHAPE,
                  "matmul_id: x.shape[1] is 2, wants 1 or 1 (top_k of ids)");
    a = good;
    a.ids.dtype = QRN_F32;
    op_test_fails(dev, op, &a, QRN_ERR_DTYPE, "matmul_id: ids is f32, wants i32");
    a = good;
    a.out.shape[2] = 18;
    op_test_fails(dev, op, &a, QRN_ERR_SHAPE, "matmul_id: out.shape[2] is 18, wants 19");
    a = good;
    a.activation = (enum qrn_activation_type) - 1;
    op_test_fails(dev, op, &a, QRN_ERR_ARGUMENT, "matmul_id: activation is -1, wants 0 to 2");
    a = good; /* one row of ids seen as very many; no rows of weights, so out is empty */
    a.x.shape[0] = a.ids.shape[0] = a.out.shape[0] = (int64_t)1 << 30;
    a.x.stride[0] = a.ids.stride[0] = 0;
    a.w.shape[1] = a.out.shape[2] = 0;
    op_test_fails(dev, op, &a, QRN_ERR_SHAPE,
                  "matmul_id: ids has 2147483648 elements, at most 2147483647");
    a = good;
    a.layout = QRN_LAYOUT_PACKED;
    op_test_fails(dev, op, &a, QRN_ERR_UNSUPPORTED, "matmul_id: no kernel");
    a = good;
    ((int32_t *)a.ids.data)[5] = -1;
    op_test_fails(dev, op, &a, QRN_ERR_ARGUMENT, "matmul_id: id 5 is -1, wants 0 to 39");
    qrn_device_close(dev);
    mem_free_all(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference),
        cmocka_unit_test(test_matmul_bits),
        cmocka_unit_test(test_replay),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
