/* SPDX-License-Identifier: MIT
 * Products with few rows of weights, and norms that add up their parts: for the joint of both. */
#ifndef QUERN_BACKENDS_CUDA_MATMUL_PARTS_H
#define QUERN_BACKENDS_CUDA_MATMUL_PARTS_H

#include "backends/cuda/matmul_job.h"

/* Sums of parts of k: of each a contiguous float [rows of x][rows of weights]. */
struct qrn_cuda_parts {
    CUdeviceptr sums; /* in the step's scratch */
    int64_t apart;    /* floats from a part's to the next one's */
    int32_t n;        /* 0: nothing was queued */
};

/* Queues the product of a step that cuda.matmul.parts takes, but for adding up. */
struct qrn_cuda_parts qrn_cuda_queue_parts(struct qrn_cuda_stream *s,
                                           const struct qrn_matmul_args *args, bool weights_stay);

/* Whether cuda.matmul.registers cuts a step's product in such parts; queues it, but for adding up. */
bool qrn_cuda_registers_have_parts(const struct qrn_cuda *cuda, const struct qrn_matmul_args *args);
struct qrn_cuda_parts qrn_cuda_queue_registers(struct qrn_cuda_stream *s,
                                               const struct qrn_matmul_args *args);

/* Whether one of its tiles ends before weight n; queues it and silu_mul of the halves of its columns, if between
 * them one does. */
bool qrn_cuda_registers_end_tiles_at(const struct qrn_matmul_args *args, int64_t n);
void qrn_cuda_registers_silu(struct qrn_cuda_stream *s, const struct qrn_matmul_args *args,
                             const struct qrn_tensor *middle);

/* Whether rms_norm.registers has a block of 16 warps for each row; then it may take x as parts, which it also stores. */
bool qrn_cuda_rms_norm_is_wide(const struct qrn_rms_norm_args *args, int64_t n_multiprocessors);
void qrn_cuda_rms_norm_of_parts(struct qrn_cuda_stream *s, const struct qrn_rms_norm_args *args,
                                const struct qrn_cuda_parts *parts, bool weight_stays);

#endif
