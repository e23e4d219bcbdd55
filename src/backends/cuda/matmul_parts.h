/* SPDX-License-Identifier: MIT
 * Products in parts of k, those of few long rows of bf16 weights, and norms that add up the parts: for joints of
 * both. */
#ifndef QUERN_BACKENDS_CUDA_MATMUL_PARTS_H
#define QUERN_BACKENDS_CUDA_MATMUL_PARTS_H

#include "backends/cuda/matmul_job.h"

/* Sums of parts of k: of each a contiguous float [rows of x][rows of weights]. */
struct qrn_cuda_parts {
    CUdeviceptr sums; /* in the step's scratch */
    int64_t apart;    /* floats from a part's to the next one's */
    int32_t n;        /* 0: nothing was queued */
    bool lets_next;   /* blocks of the next launch begin beside its own */
};

/* Queues the product of a step that cuda.matmul.parts takes, but for adding up. */
struct qrn_cuda_parts qrn_cuda_queue_parts(struct qrn_cuda_stream *s,
                                           const struct qrn_matmul_args *args, bool weights_stay);

/* Whether rms_norm.registers has a block of 16 warps for each row; then it may take x as parts, which it also stores. */
bool qrn_cuda_rms_norm_is_wide(const struct qrn_rms_norm_args *args, int64_t n_multiprocessors);
void qrn_cuda_rms_norm_of_parts(struct qrn_cuda_stream *s, const struct qrn_rms_norm_args *args,
                                const struct qrn_cuda_parts *parts, bool weight_stays);

#endif
