/* SPDX-License-Identifier: MIT
 * Rows of x rounded to 8 bits, as products of many rows with packed weights take them on Hopper (device/matmul_exact_x.cu). */
#ifndef QUERN_BACKENDS_CUDA_MATMUL_EXACT_X_H
#define QUERN_BACKENDS_CUDA_MATMUL_EXACT_X_H

#include "backends/cuda/matmul_exact_cuda.h"
#include "backends/cuda/matmul_job.h"

/* Of scratch. */
size_t qrn_cuda_exact_x_bytes(const struct qrn_matmul_params *job);
/* Queues the rounding to memory at scratch, and says in p where it is; p->n_panels is set, slots have been sorted. */
void qrn_cuda_exact_x(struct qrn_cuda_stream *s, CUdeviceptr scratch,
                      struct qrn_matmul_exact_params *p);

#endif
