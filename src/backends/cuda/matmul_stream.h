/* SPDX-License-Identifier: MIT
 * Launches of products of packed weights with few rows of x. */
#ifndef QUERN_BACKENDS_CUDA_MATMUL_STREAM_H
#define QUERN_BACKENDS_CUDA_MATMUL_STREAM_H

#include "backends/cuda/launch.h"
#include "backends/cuda/matmul_stream_cuda.h"

/* What device code of matmul_stream.cuh is given for a product that kernel stream supports, and its grid; n_tiles:
 * as many tiles instead of the job's own, 0: those.  False: it does not fit. */
bool qrn_cuda_stream_launch(const struct qrn_cuda *cuda, const struct qrn_matmul_params *job,
                            int64_t n_tiles, struct qrn_matmul_stream_params *p,
                            struct qrn_cuda_grid *grid);
/* Queues such a product; second: one of the same ids that is alike in all but weights and where results go, or NULL. */
void qrn_cuda_queue_stream(struct qrn_cuda_stream *s, const struct qrn_matmul_params *job,
                           const struct qrn_matmul_params *second);

#endif
