/* SPDX-License-Identifier: MIT
 * NVIDIA's library of matrix products, opened at run time. */
#include "cublas.h"

#ifdef QRN_CUDA
#include <dlfcn.h>
#include <string.h>

#include "bench_cases.h"
#include "clock.h"

enum { PRODUCTS = 20, ROUNDS = 5 };
/* From its header. */
enum { OP_N = 0, OP_T = 1, REAL_F32 = 0, REAL_BF16 = 14, COMPUTE_F32 = 68, ALGORITHM_ANY = -1 };

struct cublas {
    int (*create)(void **handle);
    int (*destroy)(void *handle);
    int (*product)(void *handle, int op_a, int op_b, int m, int n, int k, const void *alpha,
                   const void *a, int a_type, int lda, const void *b, int b_type, int ldb,
                   const void *beta, void *c, int c_type, int ldc, int compute, int algorithm);
    /* n elements from the device; waits for all that was queued */
    int (*get)(int n, int element_bytes, const void *x, int incx, void *y, int incy);
};

static bool find(void *library, const char *name, void *function)
{
    void *p = library ? dlsym(library, name) : NULL;
    memcpy(function, &p, sizeof p);
    return p != NULL;
}

static bool open_library(struct cublas *out)
{
    static const char *const names[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so"};
    void *library = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    return find(library, "cublasCreate_v2", &out->create) &&
           find(library, "cublasDestroy_v2", &out->destroy) &&
           find(library, "cublasGemmEx", &out->product) &&
           find(library, "cublasGetVector", &out->get);
}

/* x w^T, as the products of a model are. */
static bool multiply(const struct cublas *l, void *handle, int n, const struct qrn_tensor *x,
                     const struct qrn_tensor *w, const struct qrn_tensor *out)
{
    const float one = 1.0f, zero = 0.0f;
    return l->product(handle, OP_T, OP_N, n, n, n, &one, w->data, REAL_BF16, n, x->data, REAL_BF16,
                      n, &zero, out->data, REAL_BF16, n, COMPUTE_F32, ALGORITHM_ANY) == 0;
}

/* The best of a few rounds, each with the way to the host and back in it, which is short. */
static double best_rate(const struct cublas *l, void *handle, int n, const struct qrn_tensor *x,
                        const struct qrn_tensor *w, const struct qrn_tensor *out)
{
    double best = 0.0;
    for (int round = 0; round <= ROUNDS; round++) { /* the first one warms up */
        uint16_t last;
        const int64_t begin = now_ns();
        for (int i = 0; i < PRODUCTS; i++)
            if (!multiply(l, handle, n, x, w, out)) return 0.0;
        if (l->get(1, (int)sizeof last, out->data, 1, &last, 1) != 0) return 0.0;
        const double seconds = 1e-9 * (double)(now_ns() - begin);
        const double rate = 2.0 * PRODUCTS * (double)n * (double)n * (double)n / seconds;
        if (round > 0 && rate > best) best = rate;
    }
    return best;
}

double cublas_bf16_rate(struct qrn_device *dev, int n)
{
    struct cublas library;
    void *handle = NULL;
    double rate = 0.0;
    if (!open_library(&library) || library.create(&handle) != 0) return 0.0;
    struct bench_memory m = {.dev = dev};
    const struct qrn_tensor x = bench_uniform(&m, QRN_BF16, -1.0f, 1.0f, n, n, 0),
                            w = bench_uniform(&m, QRN_BF16, -1.0f, 1.0f, n, n, 0),
                            out = bench_uniform(&m, QRN_BF16, 0.0f, 1.0f, n, n, 0);
    if (m.status == QRN_OK) rate = best_rate(&library, handle, n, &x, &w, &out);
    bench_memory_free(&m);
    library.destroy(handle);
    return rate;
}
#else
double cublas_bf16_rate(struct qrn_device *dev, int n)
{
    (void)dev;
    (void)n;
    return 0.0;
}
#endif
