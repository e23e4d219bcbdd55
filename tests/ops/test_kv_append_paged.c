/* SPDX-License-Identifier: MIT
 * kv_append_paged: pages to the last bit as the reference writes them, and nothing else touched. */
#include <math.h>

#include "ops/paged_cache.h"

enum { N_SEQS = 3 };

/* Values that halves find hard, among ordinary ones. */
static void put_corner_cases(struct qrn_tensor t, struct rng *r)
{
    static const float hard[] = {
        0.0f,          -0.0f,          65504.0f,     65519.0f, 65520.0f,     -1e9f,
        INFINITY,      -INFINITY,      0x1p-14f,     0x1p-15f, 0x1p-24f,     0x1p-25f,
        -0x1.8p-25f,   0x1.004p-15f,   0x1.ffcp-15f, 1e-30f,   -3e-8f,       1.00048828125f,
        1.0009765625f, 1.00146484375f, -1e-41f,      6.1e-5f,  0x1.ffep-15f, 5.97e-8f,
    };
    for (size_t i = 0; i < sizeof hard / sizeof *hard; i++)
        ((float *)t.data)[rng_below(r, qrn_tensor_n_elements(&t))] = hard[i];
}

static void *pages_copy(struct mem *m, const struct paged_cache *c)
{
    const size_t n = cache_page_bytes(c);
    char *copy = mem_guarded(m, n * MAX_PAGES * N_SEQS);
    for (size_t i = 0; i < MAX_PAGES * N_SEQS; i++)
        memcpy(copy + i * n, (void *)(uintptr_t)c->table[i / MAX_PAGES][i % MAX_PAGES], n);
    return copy;
}

static void check_kernels(enum qrn_dtype type, int64_t n_heads, int64_t head_dim, int n_threads)
{
    struct mem m = {0};
    struct rng r = {(uint64_t)head_dim};
    struct paged_cache c;
    struct devices d;
    devices_open_for(&d, n_threads, QRN_OP_kv_append_paged);
    cache_init(&m, &c, type, N_SEQS, n_heads, head_dim);
    const int64_t n = cache_step(&c, (const int64_t[]){0, 63, 100}, (const int64_t[]){5, 2, 90});
    const int64_t wide[] = {n, n_heads + 1, head_dim + 3}; /* a part of something wider */
    const struct qrn_tensor k_all = mem_filled(&m, &r, 2.0, 3, wide);
    const struct qrn_tensor v_all = mem_filled(&m, &r, 2.0, 3, wide);
    put_corner_cases(k_all, &r);
    put_corner_cases(v_all, &r);
    const struct qrn_tensor k =
        qrn_tensor_slice(qrn_tensor_slice(k_all, 1, 1, n_heads), 2, 3, head_dim);
    const struct qrn_tensor v =
        qrn_tensor_slice(qrn_tensor_slice(v_all, 1, 0, n_heads), 2, 1, head_dim);
    const struct qrn_kv_append_paged_args a = cache_append(&c, k, v);
    const size_t n_bytes = cache_page_bytes(&c) * MAX_PAGES * N_SEQS;
    qrn_op(QRN_OP_kv_append_paged)->reference(&a);
    const void *want = pages_copy(&m, &c);
    for (size_t j = 0; j < d.n; j++) {
        const struct qrn_kernel *kernel;
        for (size_t i = 0; (kernel = qrn_kernel_at(d.dev[j], QRN_OP_kv_append_paged, i)) != NULL;
             i++) {
            struct qrn_error err = {0};
            cache_clear(&c);
            if (qrn_kernel_run(d.dev[j], kernel, &a, &err) != QRN_OK) fail_msg("%s", err.text);
            if (memcmp(want, pages_copy(&m, &c), n_bytes) != 0)
                fail_msg("%s, %s, head_dim %d: pages differ from the reference", kernel->name,
                         qrn_dtype_info(type)->name, (int)head_dim);
        }
    }
    devices_close(&d);
    mem_free_all(&m);
}

static void test_reference(void **state)
{
    (void)state;
    check_kernels(QRN_F16, 2, 256, 1);
    check_kernels(QRN_F32, 2, 64, 2);
    check_kernels(QRN_F16, 3, 20, 3);
    check_kernels(QRN_F32, 1, 1, 1);
    check_kernels(QRN_F16, 1, 300, 2);
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
    const int64_t shape[] = {4, 2, 8};
    const struct qrn_kv_append_paged_args good =
        cache_append(&c, mem_filled(&m, &r, 1.0, 3, shape), mem_filled(&m, &r, 1.0, 3, shape));
    struct qrn_kv_append_paged_args a = good;
    const enum qrn_op_id op = QRN_OP_kv_append_paged;
    a.k = (struct qrn_tensor){0};
    op_test_fails(dev, op, &a, QRN_ERR_ARGUMENT, "kv_append_paged: k is missing");
    a = good;
    a.v.shape[1] = 1;
    op_test_fails(dev, op, &a, QRN_ERR_SHAPE, "v.shape[1] is 1, wants 2 (that of k)");
    a = good;
    a.v.dtype = QRN_F16;
    op_test_fails(dev, op, &a, QRN_ERR_DTYPE, "v is f16, wants f32");
    a = good;
    a.kv_type = QRN_Q8_0;
    op_test_fails(dev, op, &a, QRN_ERR_DTYPE, "wants f32 (0) or f16 (1)");
    a = good;
    a.page_offset = -64;
    op_test_fails(dev, op, &a, QRN_ERR_ARGUMENT,
                  "page_offset is -64, wants a multiple of 64, 0 or more");
    a = good;
    c.position[0] = 64 * MAX_PAGES - 2;
    op_test_fails(dev, op, &a, QRN_ERR_LIMIT,
                  "sequence 0 ends at position 2561, its 40 pages hold 2560");
    c.position[0] = -3;
    op_test_fails(dev, op, &a, QRN_ERR_ARGUMENT, "position[0] is -3, wants 0 or more");
    c.position[0] = 70;
    c.table[0][0] = 0; /* a page that is not written to */
    call(dev, op, &a);
    c.table[0][1] = 0;
    op_test_fails(dev, op, &a, QRN_ERR_ARGUMENT,
                  "pages[0][1] is 0, wants an address, a multiple of 64");
    qrn_device_close(dev);
    mem_free_all(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_reference),
                                       cmocka_unit_test(test_errors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
