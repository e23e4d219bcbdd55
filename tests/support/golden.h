/* SPDX-License-Identifier: MIT
 * Entries of tests/data/op_goldens.safetensors as tensors, and how far off a result is. */
#ifndef TESTS_SUPPORT_GOLDEN_H
#define TESTS_SUPPORT_GOLDEN_H

#include <math.h>
#include <string.h>

#include "support/op_test.h"
#include "support/tensor_file.h"

/* A copy at a guard page.  Ends the test if there is none of that name and size. */
static inline struct qrn_tensor golden_tensor(struct mem *m, const struct tensor_file *file,
                                              const char *name, enum qrn_dtype dtype, int n_dims,
                                              const int64_t *shape)
{
    const struct qrn_tensor t = mem_tensor(m, dtype, n_dims, shape);
    size_t n_bytes = 0;
    const uint8_t *bytes = tensor_file_find(file, name, &n_bytes);
    if (!bytes || n_bytes != t.n_bytes) fail_msg("%s: not there, or of another size", name);
    memcpy(t.data, bytes, n_bytes);
    return t;
}

/* max |got - want| / rms(want) */
static inline double golden_error(const struct qrn_tensor *got, const struct qrn_tensor *want)
{
    double worst = 0.0, squares = 0.0;
    const int64_t n = qrn_tensor_n_elements(want);
    for (int64_t i = 0; i < n; i++) {
        const double w = qrn_ref_get_flat(want, i), e = fabs(qrn_ref_get_flat(got, i) - w);
        squares += w * w;
        if (!(e <= worst)) worst = e;
    }
    return worst / sqrt(squares / (double)n);
}

#endif
