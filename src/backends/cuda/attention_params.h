/* SPDX-License-Identifier: MIT
 * What attention kernels are given, made from the ops' arguments. */
#ifndef QUERN_BACKENDS_CUDA_ATTENTION_PARAMS_H
#define QUERN_BACKENDS_CUDA_ATTENTION_PARAMS_H

#include <quern/ops.h>

#include "backends/cuda/attention_cuda.h"
#include "backends/cuda/launch.h"

struct qrn_attention_params qrn_cuda_attention_params(const struct qrn_attention_args *a);
struct qrn_attention_params
qrn_cuda_attention_paged_params(const struct qrn_attention_paged_args *a);

/* Tiles of `rows` rows, for all that the sequences may be; of a batch, or in all of those in pages. */
int64_t qrn_cuda_attention_tiles(const struct qrn_attention_params *p, int64_t rows);

/* Rows of a tile of attention_decode.cuh, and how many blocks may share one's keys; counts tiles and runs.  0: sequences
 * have too many rows for it. */
int64_t qrn_cuda_attention_plan_decode(struct qrn_attention_params *p, int64_t *n_shares);

/* cuda.attention_paged.mma, for those sequences that p->only says. */
size_t qrn_cuda_attention_paged_mma_scratch(const void *args, int n_threads);
void qrn_cuda_attention_run_mma(struct qrn_cuda_stream *stream, struct qrn_attention_params *p);

#endif
