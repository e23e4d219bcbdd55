/* SPDX-License-Identifier: MIT
 * What tests of products by cuBLASLt share. */
#ifndef QUERN_TESTS_BLAS_TEST_H
#define QUERN_TESTS_BLAS_TEST_H

#include <dlfcn.h>
#include <stdlib.h>

#include "emulator/blas_counts.h"
#include "support/matmul_gpu.h"

static const char blas_kernel[] = "cuda.matmul.cublaslt";

/* A GPU with the library, which memory of mem_guarded is shared with; skips the test without. */
static inline struct qrn_device *blas_device(void)
{
    struct qrn_error err;
    qrn_device_close(op_test_open_gpu_for(QRN_OP_matmul));
    struct qrn_device *dev = op_test_open_gpu_blas(&err);
    if (!dev) skip();
    return dev;
}

static inline bool blas_is_emulated(void)
{
    return op_test_blas() && !op_test_gpu_is_real();
}

/* What the emulated library has done so far; zeros of a real one. */
static inline struct emulated_blas_counts blas_counts(void)
{
    struct emulated_blas_counts c = {0};
    void (*count)(struct emulated_blas_counts *);
    if (!blas_is_emulated()) return c;
    void *library = dlopen(op_test_blas(), RTLD_NOW);
    void *p = library ? dlsym(library, "emulated_blas_count") : NULL;
    assert_non_null(p);
    memcpy(&count, &p, sizeof p);
    count(&c);
    (void)dlclose(library);
    return c;
}

/* m rows of x, n of weights, k long, as the kernel takes them. */
static inline struct qrn_matmul_args blas_product(struct mem *m, struct rng *r, int64_t n_rows,
                                                  int64_t n, int64_t k)
{
    return (struct qrn_matmul_args){
        .w = random_weights(m, r, weight_type_of(QRN_BF16), 2, (const int64_t[]){n, k}, 32, QRN_F32)
                 .w,
        .x = mem_filled(m, r, 1.0, 2, (const int64_t[]){n_rows, k}),
        .out = mem_tensor(m, QRN_F32, 2, (const int64_t[]){n_rows, n}),
        .activation = QRN_ACT_BF16,
        .any_order = true};
}

#endif
