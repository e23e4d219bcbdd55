/* SPDX-License-Identifier: MIT
 * Products by expert of packed weights with bf16 x whose weights become bf16 in registers: a form of
 * cuda.matmul_id.wgmma. */
#ifndef QUERN_BACKENDS_CUDA_MATMUL_EXPERTS_H
#define QUERN_BACKENDS_CUDA_MATMUL_EXPERTS_H

#include "backends/cuda/launch.h"
#include "backends/cuda/matmul_experts_cuda.h"

/* Whether a product that cuda.matmul_id.wgmma takes is this form's. */
bool qrn_cuda_experts_take(const struct qrn_matmul_params *job);
/* Scratch begins with lists of slots, which several products of the same ids may share. */
size_t qrn_cuda_experts_scratch(struct qrn_matmul_params *job);
/* Queues the lists, or takes those of a product before, of the same ids and as many matrices. */
void qrn_cuda_list_experts(struct qrn_cuda_stream *s, struct qrn_matmul_params *job);
void qrn_cuda_share_experts(const struct qrn_matmul_params *from, struct qrn_matmul_params *job);
/* Whether two products are alike in all but weights and where results go. */
bool qrn_cuda_experts_are_alike(const struct qrn_matmul_params *a,
                                const struct qrn_matmul_params *b);
/* Queues a product, after the lists; second: one that is alike, or NULL. */
void qrn_cuda_queue_experts(struct qrn_cuda_stream *s, const struct qrn_matmul_params *job,
                            const struct qrn_matmul_params *second);

#endif
