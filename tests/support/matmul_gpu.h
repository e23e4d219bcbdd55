/* SPDX-License-Identifier: MIT
 * What tests of a GPU's single product kernels share. */
#ifndef QUERN_TESTS_MATMUL_GPU_H
#define QUERN_TESTS_MATMUL_GPU_H

#include <stdlib.h>

#include "support/weights.h"

/* The kernel of that name; NULL where the device has none. */
static inline const struct qrn_kernel *matmul_kernel(struct qrn_device *dev, const char *name)
{
    const struct qrn_kernel *k;
    for (size_t i = 0; (k = qrn_kernel_at(dev, QRN_OP_matmul, i)) != NULL; i++)
        if (strcmp(k->name, name) == 0) return k;
    return NULL;
}

/* A GPU that has it, an emulated one with so many multiprocessors; skips the test without. */
static inline struct qrn_device *matmul_device(const char *n_multiprocessors, const char *name)
{
    setenv("QRN_EMULATED_MULTIPROCESSORS", n_multiprocessors, 1);
    struct qrn_device *dev = op_test_open_gpu_for(QRN_OP_matmul);
    unsetenv("QRN_EMULATED_MULTIPROCESSORS");
    if (!dev || !matmul_kernel(dev, name)) skip();
    return dev;
}

/* x as bf16, where it can be mapped and where it cannot, with rows of out further apart: the bits of a->out. */
static inline void matmul_check_strides(struct mem *m, struct qrn_device *dev, const char *name,
                                        const struct qrn_matmul_args *a, const char *what)
{
    const int64_t n_rows = a->x.shape[0], k = a->x.shape[1], n = a->out.shape[1];
    struct qrn_matmul_args b = *a;
    struct qrn_error err;
    for (int64_t more = 3; more <= 8; more += 5) {
        const struct qrn_tensor wide =
            mem_tensor(m, QRN_BF16, 2, (const int64_t[]){n_rows, k + more});
        const struct qrn_cast_args cast = {a->x, qrn_tensor_slice(wide, 1, more, k)};
        if (qrn_cast(dev, &cast, &err) != QRN_OK) fail_msg("%s: %s", what, err.text);
        b.x = cast.out;
        b.out = qrn_tensor_slice(mem_tensor(m, QRN_F32, 2, (const int64_t[]){n_rows, n + more}), 1,
                                 1, n);
        for (int64_t r = 0; r < n_rows; r++)
            memset((float *)b.out.data + r * (n + more), 0xff, (size_t)n * sizeof(float));
        if (qrn_kernel_run(dev, matmul_kernel(dev, name), &b, &err) != QRN_OK)
            fail_msg("%s: %s", what, err.text);
        for (int64_t r = 0; r < n_rows; r++)
            assert_memory_equal((const float *)b.out.data + r * (n + more),
                                (const float *)a->out.data + r * n, (size_t)n * sizeof(float));
    }
}

#endif
