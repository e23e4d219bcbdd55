/* SPDX-License-Identifier: MIT
 * Arguments of products made ready for device code. */
#ifndef QUERN_BACKENDS_CUDA_MATMUL_JOB_H
#define QUERN_BACKENDS_CUDA_MATMUL_JOB_H

#include "backends/cuda/matmul_cuda.h"
#include "backends/cuda/rows.h"
#include "ops/matmul_common.h"

/* Weights as an op has them.  packed: whether w.data is an image; then false when w.n_bytes is not the
 * size of one. */
bool qrn_cuda_weights(const struct qrn_tensor *w, const struct qrn_tensor *scales,
                      const struct qrn_tensor *biases, bool packed, struct qrn_weights_params *out);

/* Size of the image of weights in rows; 0 when there is none. */
size_t qrn_cuda_packed_bytes(const struct qrn_tensor *w, const struct qrn_tensor *scales,
                             const struct qrn_tensor *biases, struct qrn_weights_params *out);

/* A product without scratch; false where the weights are packed in some other way. */
bool qrn_cuda_matmul_job(const struct qrn_matmul_args *a, struct qrn_matmul_params *out);
bool qrn_cuda_matmul_id_job(const struct qrn_matmul_id_args *a, struct qrn_matmul_params *out);

#endif
