/* SPDX-License-Identifier: MIT
 * Products of bf16 weights in tiles of all k, whose outputs are gates and ups: for joints with silu_mul. */
#ifndef QUERN_BACKENDS_CUDA_MATMUL_WHOLE_H
#define QUERN_BACKENDS_CUDA_MATMUL_WHOLE_H

#include "backends/cuda/launch.h"

/* Queues the product of a step that cuda.matmul.whole takes and silu_mul of the halves of its outputs, which are left in memory,
 * too, unless silu_mul drops them. */
void qrn_cuda_whole_silu(struct qrn_cuda_stream *s, const struct qrn_matmul_args *product,
                         const struct qrn_silu_mul_args *silu, bool weights_stay);

#endif
