/* SPDX-License-Identifier: MIT
 * Short rows of norms where there are many. */
#ifndef QUERN_BACKENDS_CUDA_NORM_RUNS_H
#define QUERN_BACKENDS_CUDA_NORM_RUNS_H

#include "backends/cuda/norm_cuda.h"
#include "backends/cuda/rows.h"

/* How many rows a warp takes at once. */
static inline int64_t qrn_cuda_norm_run(const struct qrn_cuda *cuda,
                                        const struct qrn_rows_shape *shape)
{
    const int64_t n = shape->d <= QRN_PIECE       ? QRN_NORM_RUN
                      : shape->d <= 2 * QRN_PIECE ? QRN_NORM_RUN / 2
                                                  : 1;
    const bool many = qrn_are_many(qrn_n_rows(shape), cuda->n_multiprocessors);
    return many && shape->n[2] % n == 0 ? n : 1;
}

#endif
