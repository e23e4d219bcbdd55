/* SPDX-License-Identifier: MIT
 * kv_append: every cache type to the last bit, rings, and every error. */
#include <math.h>
#include <string.h>

#include "support/op_test.h"

static const struct {
    int64_t n_tokens, n_heads, head_dim, v_dim, capacity;
    int32_t position;
    enum qrn_dtype k_type, v_type;
    bool ring;
    const char *why;
} cases[] = {
    {1, 1, 1, 1, 1, 0, QRN_F32, QRN_F32, false, "smallest"},
    {5, 2, 64, 64, 40, 35, QRN_F16, QRN_F16, false, "up to the end"},
    {7, 3, 20, 24, 16, 12, QRN_BF16, QRN_F32, true, "over the edge of a ring"},
    {19, 2, 9, 9, 8, 100, QRN_F16, QRN_BF16, true, "more tokens than a ring holds"},
    {8, 2, 9, 9, 8, 3, QRN_F32, QRN_F16, true, "exactly a ring"},
    {0, 2, 9, 9, 8, 3, QRN_F32, QRN_F16, false, "no tokens"},
};

static struct qrn_kv_append_args make(struct mem *m, struct rng *r, size_t i)
{
    const int64_t k[] = {cases[i].n_tokens, cases[i].n_heads, cases[i].head_dim};
    const int64_t v[] = {cases[i].n_tokens, cases[i].n_heads, cases[i].v_dim};
    const int64_t cache_k[] = {cases[i].n_heads, cases[i].capacity, cases[i].head_dim};
    const int64_t cache_v[] = {cases[i].n_heads, cases[i].capacity, cases[i].v_dim};
    const int64_t one = 1;
    struct qrn_kv_append_args a = {
        .k = mem_filled(m, r, 1e3, 3, k),
        .v = mem_filled(m, r, 1e-6, 3, v),
        .ring = cases[i].ring,
        .position = mem_tensor(m, QRN_I32, 1, &one),
        .cache_k = mem_tensor(m, cases[i].k_type, 3, cache_k),
        .cache_v = mem_tensor(m, cases[i].v_type, 3, cache_v),
    };
    *(int32_t *)a.position.data = cases[i].position;
    memset(a.cache_k.data, 0x11, a.cache_k.n_bytes);
    memset(a.cache_v.data, 0x11, a.cache_v.n_bytes);
    return a;
}

static void test_reference(void **state)
{
    (void)state;
    struct devices d;
    devices_open_for(&d, 2, QRN_OP_kv_append);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mem m = {0};
        struct rng r = {i};
        const struct qrn_kv_append_args a = make(&m, &r, i);
        struct qrn_kv_append_args want = a;
        want.cache_k.data = mem_guarded(&m, a.cache_k.n_bytes);
        want.cache_v.data = mem_guarded(&m, a.cache_v.n_bytes);
        memcpy(want.cache_k.data, a.cache_k.data, a.cache_k.n_bytes);
        memcpy(want.cache_v.data, a.cache_v.data, a.cache_v.n_bytes);
        qrn_op(QRN_OP_kv_append)->reference(&want);
        op_test_same_bits(QRN_OP_kv_append, &a, cases[i].why);
        for (size_t j = 0; j < d.n; j++) {
            const struct qrn_kernel *kernel;
            for (size_t c = 0; (kernel = qrn_kernel_at(d.dev[j], QRN_OP_kv_append, c)) != NULL;
                 c++) {
                struct qrn_error err = {0};
                memset(a.cache_k.data, 0x11, a.cache_k.n_bytes);
                memset(a.cache_v.data, 0x11, a.cache_v.n_bytes);
                if (qrn_kernel_run(d.dev[j], kernel, &a, &err) != QRN_OK) fail_msg("%s", err.text);
                assert_memory_equal(a.cache_k.data, want.cache_k.data, a.cache_k.n_bytes);
                assert_memory_equal(a.cache_v.data, want.cache_v.data, a.cache_v.n_bytes);
            }
        }
        mem_free_all(&m);
    }
    devices_close(&d);
}

static void test_errors(void **state)
{
    (void)state;
    struct mem m = {0};
    struct rng r = {5};
    struct qrn_device *dev;
    assert_int_equal(qrn_device_open(NULL, &dev, NULL), QRN_OK);
    const struct qrn_kv_append_args good = make(&m, &r, 1);
    struct qrn_kv_append_args a;
#define FAILS(change, status, text)                                                                \
    a = good;                                                                                      \
    change;                                                                                        \
    op_test_fails(dev, QRN_OP_kv_append, &a, status, text)
    FAILS(a.v = (struct qrn_tensor){0}, QRN_ERR_ARGUMENT, "kv_append: v is missing");
    FAILS(a.k.dtype = QRN_F16, QRN_ERR_DTYPE, "k is f16, wants f32");
    FAILS(a.v.shape[0] = 4, QRN_ERR_SHAPE, "v.shape[0] is 4, wants 5");
    FAILS(a.cache_k.dtype = QRN_I16, QRN_ERR_DTYPE, "cache_k is i16, wants f32 or f16 or bf16");
    FAILS(a.cache_k.shape[0] = 1, QRN_ERR_SHAPE, "cache_k.shape[0] is 1, wants 2");
    FAILS(a.cache_v.shape[1] = 39, QRN_ERR_SHAPE, "cache_v.shape[1] is 39, wants 40");
    FAILS(a.cache_v.shape[2] = 63, QRN_ERR_SHAPE, "cache_v.shape[2] is 63, wants 64");
    FAILS(a.cache_k.shape[1] = a.cache_v.shape[1] = 0, QRN_ERR_SHAPE,
          "cache_k.shape[1] is 0, wants 1 or more");
    FAILS(a.position.dtype = QRN_U32, QRN_ERR_DTYPE, "position is u32, wants i32");
    FAILS(*(int32_t *)a.position.data = 36, QRN_ERR_LIMIT,
          "5 tokens from position 36 on do not fit in a cache of 40");
    FAILS(*(int32_t *)a.position.data = -1, QRN_ERR_ARGUMENT, "position[0] is -1, wants 0 or more");
    FAILS(a.cache_v = a.cache_k, QRN_ERR_ARGUMENT, "overlaps");
#undef FAILS
    qrn_device_close(dev);
    mem_free_all(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_reference),
                                       cmocka_unit_test(test_errors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
