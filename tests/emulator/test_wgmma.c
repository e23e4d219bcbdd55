/* SPDX-License-Identifier: MIT
 * Hopper's tensor cores, bulk copies and barriers by the contracts of wgmma.cuh and pipeline.cuh: on the
 * emulator, and on a GPU that has them. */
#include "support/op_test.h"

#ifdef QRN_CUDA
#include "backends/cuda/tensor_map.h"
#include "base/half.h"
#include "emulator/driver_test.h"
#include "emulator/kernels.h"

extern const unsigned char qrn_cuda_image_kernels_sm90a[];

enum { M = 64, N = 128, MAX_K = 192, BY_K = 0, BY_ROWS = 1 };

/* n random halves of bf16 in memory of the device. */
static CUdeviceptr random_halves(struct test *t, struct rng *r, int n, uint16_t *out)
{
    CUdeviceptr p;
    for (int i = 0; i < n; i++) out[i] = qrn_float_to_bf16((float)rng_normal(r));
    GOOD(t->d.memory_alloc(&p, 2 * (size_t)n));
    memcpy(t->memory, out, 2 * (size_t)n);
    GOOD(t->d.copy_to_device(p, t->memory, 2 * (size_t)n, t->stream));
    GOOD(t->d.stream_synchronize(t->stream));
    return p;
}

static void map(struct test *t, CUdeviceptr data, int64_t n, int64_t n_rows, int box_rows,
                struct qrn_tensor_map *out)
{
    struct qrn_cuda cuda = {.driver = t->d};
    struct qrn_cuda_stream s = {.cuda = &cuda};
    const struct qrn_tensor_box box = {
        (const void *)(uintptr_t)data, QRN_BF16, n, n_rows, 1, 2 * n, 0, 64, box_rows};
    assert_true(qrn_cuda_can_map(&box));
    qrn_cuda_tensor_map(&s, &box, out);
    GOOD(s.result);
}

static double element(const uint16_t *of, int way, int n_rows, int row, int k, int n_k)
{
    if (k >= n_k) return 0.0;
    return (double)qrn_bf16_to_float(way == BY_K ? of[row * n_k + k] : of[k * n_rows + row]);
}

/* k_here of p.k are there; the rest lies outside of the tensors. */
static void check_product(struct test *t, struct qrn_test_wgmma_params *p, int n_k)
{
    static uint16_t a[M * MAX_K], b[N * MAX_K];
    struct rng r = {(uint64_t)n_k};
    const CUdeviceptr pa = random_halves(t, &r, M * n_k, a), pb = random_halves(t, &r, N * n_k, b);
    if (p->way == BY_K) {
        map(t, pa, n_k, M, M, &p->a);
        map(t, pb, n_k, N, N, &p->b);
    } else {
        map(t, pa, M, n_k, 64, &p->a);
        map(t, pb, N, n_k, 64, &p->b);
    }
    p->c = t->memory;
    GOOD(launch(t, "qrn_test_wgmma", 160, 2 * (M + 2 * N) * 64 + 1024, p));
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            double sum = 0.0;
            for (int k = 0; k < n_k; k++)
                sum += element(a, p->way, M, i, k, n_k) * element(b, p->way, N, j, k, n_k);
            assert_float_equal(t->memory[i * N + j], (float)sum, 1e-4f);
        }
    GOOD(t->d.memory_free(pa));
    GOOD(t->d.memory_free(pb));
}

static void test_products(void **state)
{
    (void)state;
    struct test t;
    if (is_not_hopper()) skip();
    begin(&t, qrn_cuda_image_kernels_sm90a);
    for (int n_k = 64; n_k <= MAX_K; n_k += 40) /* ends inside a box but for the first */
        for (int way = 0; way < 2; way++)
            for (int i = 0; i < (way == BY_K ? 4 : 1); i++) {
                struct qrn_test_wgmma_params p = {.k = (n_k + 63) / 64 * 64,
                                                  .way = way,
                                                  .a_in_registers = i % 2,
                                                  .b_in_slices = i / 2};
                check_product(&t, &p, n_k);
            }
    end(&t);
}

static void test_pipeline(void **state)
{
    (void)state;
    static uint16_t data[1024];
    struct test t;
    struct rng r = {7};
    if (is_not_hopper()) skip();
    begin(&t, qrn_cuda_image_kernels_sm90a);
    const CUdeviceptr p = random_halves(&t, &r, 1024, data);
    struct qrn_test_wgmma_params params = {.data = (const void *)(uintptr_t)p, .c = t.memory};
    memset(t.memory, 0xff, 2048);
    GOOD(launch(&t, "qrn_test_pipeline", 96, 2048, &params));
    assert_memory_equal(t.memory, data, 2048);
    GOOD(t.d.memory_free(p));
    end(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_pipeline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
int main(void)
{
    return 0; /* nothing to emulate */
}
#endif
