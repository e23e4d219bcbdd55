/* SPDX-License-Identifier: MIT
 * Products of one matrix with many rows of bf16 x, in any order: a form of cuda.matmul.wgmma. */
#ifndef QUERN_BACKENDS_CUDA_MATMUL_PROMPTS_H
#define QUERN_BACKENDS_CUDA_MATMUL_PROMPTS_H

#include "backends/cuda/launch.h"
#include "backends/cuda/matmul_prompts_cuda.h"

/* Whether a product that cuda.matmul.wgmma takes is this form's on so many multiprocessors. */
bool qrn_cuda_prompts_take(const struct qrn_matmul_params *job, int n_blocks);
/* Rows of x of a tile. */
int qrn_cuda_prompts_columns(const struct qrn_matmul_params *job, int n_blocks);
/* Queues it.  x: its rows, rounded, by boxes of a tile's rows and QRN_PROMPTS_K columns; scratch: for as many floats
 * as a tile has, QRN_PROMPTS_MOST_BLOCKS times; silu: what is made in out's place, gates of packed weights in whole
 * groups. */
void qrn_cuda_queue_prompts(struct qrn_cuda_stream *s, const struct qrn_matmul_params *job,
                            const struct qrn_tensor_map *x, CUdeviceptr scratch,
                            const struct qrn_silu_params *silu, bool weights_stay);

#endif
