/* SPDX-License-Identifier: MIT
 * Products of float32 weights in rows with many rows of float32 x by parts of them, on Hopper: a form of
 * cuda.matmul.floats. */
#ifndef QUERN_BACKENDS_CUDA_MATMUL_SPLIT_H
#define QUERN_BACKENDS_CUDA_MATMUL_SPLIT_H

#include "backends/cuda/launch.h"
#include "backends/cuda/matmul_cuda.h"

/* Whether a product that cuda.matmul.floats takes is this form's. */
bool qrn_cuda_split_takes(const struct qrn_cuda *cuda, const struct qrn_matmul_params *job);
void qrn_cuda_queue_split(struct qrn_cuda_stream *s, const struct qrn_matmul_params *job);

#endif
