/* SPDX-License-Identifier: MIT
 * Products that cuda.matmul.registers takes, for joints whose second launch adds up pieces of their tiles. */
#ifndef QUERN_BACKENDS_CUDA_MATMUL_REGISTERS_H
#define QUERN_BACKENDS_CUDA_MATMUL_REGISTERS_H

#include "backends/cuda/matmul_parts.h"

/* Whether the product's tiles are cut in equal parts of k. */
bool qrn_cuda_registers_have_parts(const struct qrn_cuda *cuda, const struct qrn_matmul_args *args);
/* Queues it, if they are, but for adding up. */
struct qrn_cuda_parts qrn_cuda_queue_registers(struct qrn_cuda_stream *s,
                                               const struct qrn_matmul_args *args);

/* Whether columns from n on are other tiles' than those before. */
bool qrn_cuda_registers_end_tiles_at(const struct qrn_matmul_args *args, int64_t n);
/* Queues the product and silu_mul of the halves of its columns, which have tiles of their own; both are left in
 * out, too. */
void qrn_cuda_registers_silu(struct qrn_cuda_stream *s, const struct qrn_matmul_args *args,
                             const struct qrn_tensor *middle);

#endif
