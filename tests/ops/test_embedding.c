/* SPDX-License-Identifier: MIT
 * embedding: rows of every type, exactly as they decode; packing refuses what it cannot lay out. */
#include <stdio.h>

#include "support/weights.h"

static struct qrn_embedding_args make(struct mem *m, struct rng *r, size_t t, int64_t n_vocab,
                                      int64_t d, int64_t n_tokens, int64_t group,
                                      enum qrn_dtype scales_type)
{
    const struct weights w =
        random_weights(m, r, t, 2, (const int64_t[]){n_vocab, d}, group, scales_type);
    struct qrn_embedding_args a = {.table = w.w,
                                   .scales = w.scales,
                                   .biases = w.biases,
                                   .ids = mem_tensor(m, QRN_I32, 1, &n_tokens),
                                   .out =
                                       mem_tensor(m, QRN_F32, 2, (const int64_t[]){n_tokens, d})};
    for (int64_t i = 0; i < n_tokens; i++)
        ((int32_t *)a.ids.data)[i] = (int32_t)rng_below(r, n_vocab);
    return a;
}

static void test_types(void **state)
{
    (void)state;
    static const struct {
        int64_t d, n_tokens, group;
        enum qrn_dtype scales_type;
    } cases[] = {{256, 1, 32, QRN_F32},
                 {768, 9, 64, QRN_BF16},
                 {1280, 3, 128, QRN_F16},
                 {256, 0, 32, QRN_F32}};
    struct devices d;
    devices_open_for(&d, 3, QRN_OP_embedding);
    for (size_t t = 0; t < N_WEIGHT_TYPES; t++)
        for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
            struct mem m = {0};
            struct rng r = {7 * t + c};
            const struct qrn_embedding_args a = make(&m, &r, t, 21, cases[c].d, cases[c].n_tokens,
                                                     cases[c].group, cases[c].scales_type);
            const char *what = qrn_dtype_info(a.table.dtype)->name;
            for (size_t i = 0; i < d.n; i++)
                op_test_against_reference(d.dev[i], QRN_OP_embedding, &a, 0.0, what);
            op_test_same_bits(QRN_OP_embedding, &a, what);
            mem_free_all(&m);
        }
    devices_close(&d);
}

/* From packed weights the same bits as from rows, for every type that has a packed form. */
static void test_packed(void **state)
{
    (void)state;
    static const int64_t groups[] = {32, 64, 128};
    struct devices d;
    size_t n_packed = 0;
    devices_open_for(&d, 2, QRN_OP_embedding);
    for (size_t t = 0; t < N_WEIGHT_TYPES; t++)
        for (size_t c = 0; c < 3; c++) {
            struct mem m = {0};
            struct rng r = {9 * t + c};
            struct qrn_error err;
            struct qrn_embedding_args a =
                make(&m, &r, t, 37, 768, 30, groups[c], c ? QRN_BF16 : QRN_F32);
            struct qrn_matmul_pack_args pack = {.w = a.table, .scales = a.scales,
                                                .biases = a.biases, .activation = QRN_ACT_Q8};
            const char *what = qrn_dtype_info(a.table.dtype)->name;
            float *want = mem_guarded(&m, a.out.n_bytes);
            if (qrn_embedding(d.dev[0], &a, &err) != QRN_OK) fail_msg("%s: %s", what, err.text);
            memcpy(want, a.out.data, a.out.n_bytes);
            for (size_t i = 0; i < d.n; i++) {
                size_t n_bytes;
                assert_int_equal(qrn_matmul_packed_bytes(d.dev[i], &pack, &n_bytes, &err), QRN_OK);
                if (n_bytes == 0) continue;
                struct qrn_embedding_args b = {
                    .table = a.table, .ids = a.ids, .out = a.out, .layout = QRN_LAYOUT_PACKED};
                b.table.data = mem_guarded(&m, n_bytes);
                b.table.n_bytes = n_bytes;
                pack.packed = qrn_tensor_1d(QRN_U8, b.table.data, (int64_t)n_bytes);
                if (qrn_matmul_pack(d.dev[i], &pack, &err) != QRN_OK) fail_msg("%s", err.text);
                memset(b.out.data, 0xff, b.out.n_bytes);
                if (qrn_embedding(d.dev[i], &b, &err) != QRN_OK) fail_msg("%s: %s", what, err.text);
                if (memcmp(want, b.out.data, b.out.n_bytes) != 0)
                    fail_msg("%s: packed weights give other rows", what);
                n_packed++;
            }
            mem_free_all(&m);
        }
    devices_close(&d);
    print_message("%zu packed tables\n", n_packed);
}

static void test_strided(void **state)
{
    (void)state;
    struct devices d;
    struct mem m = {0};
    struct rng r = {2};
    devices_open_for(&d, 2, QRN_OP_embedding);
    for (size_t t = 0; t < N_WEIGHT_TYPES; t++) {
        struct qrn_embedding_args a = make(&m, &r, t, 12, 1024, 5, 32, QRN_F32);
        const struct qrn_tensor out = mem_filled(&m, &r, 1.0, 2, (const int64_t[]){5, 600});
        a.table = qrn_tensor_slice(a.table, 1, 256, 512);
        if (a.scales.n_dims) {
            a.scales = qrn_tensor_slice(a.scales, 1, 8, 16);
            a.biases = qrn_tensor_slice(a.biases, 1, 8, 16);
        }
        a.out = qrn_tensor_slice(out, 1, 7, 512);
        for (size_t i = 0; i < d.n; i++)
            op_test_against_reference(d.dev[i], QRN_OP_embedding, &a, 0.0,
                                      qrn_dtype_info(a.table.dtype)->name);
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
    const enum qrn_op_id op = QRN_OP_embedding;
    assert_int_equal(qrn_device_open(NULL, &dev, NULL), QRN_OK);
    const struct qrn_embedding_args good = make(&m, &r, 0, 21, 40, 6, 32, QRN_F32);
    struct qrn_embedding_args a = good;
    a.table = qrn_tensor_1d(QRN_F32, good.table.data, 40);
    op_test_fails(dev, op, &a, QRN_ERR_SHAPE, "embedding: table has 1 dimensions, wants 2");
    a = good;
    a.table.dtype = QRN_U32;
    op_test_fails(dev, op, &a, QRN_ERR_DTYPE, "embedding: table is u32, which holds no weights");
    a = good;
    a.ids.dtype = QRN_F32;
    op_test_fails(dev, op, &a, QRN_ERR_DTYPE, "embedding: ids is f32, wants i32");
    a = good;
    a.out.shape[1] = 39;
    op_test_fails(dev, op, &a, QRN_ERR_SHAPE, "embedding: out.shape[1] is 39, wants 40");
    a = good;
    a.out.shape[0] = 5;
    op_test_fails(dev, op, &a, QRN_ERR_SHAPE, "embedding: out.shape[0] is 5, wants 6");
    a = good;
    a.scales = good.table;
    op_test_fails(dev, op, &a, QRN_ERR_ARGUMENT,
                  "embedding: scales and biases are for MLX codes in rows");
    ((int32_t *)good.ids.data)[4] = 21;
    op_test_fails(dev, op, &good, QRN_ERR_ARGUMENT, "embedding: id 4 is 21, wants 0 to 20");
    ((int32_t *)good.ids.data)[4] = -7;
    op_test_fails(dev, op, &good, QRN_ERR_ARGUMENT, "embedding: id 4 is -7, wants 0 to 20");
    qrn_device_close(dev);
    mem_free_all(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_packed),
        cmocka_unit_test(test_strided),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
