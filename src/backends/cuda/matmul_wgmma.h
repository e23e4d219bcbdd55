/* SPDX-License-Identifier: MIT
 * Products that cuda.matmul.wgmma takes, of gates and ups: for joints with silu_mul. */
#ifndef QUERN_BACKENDS_CUDA_MATMUL_WGMMA_H
#define QUERN_BACKENDS_CUDA_MATMUL_WGMMA_H

#include "backends/cuda/launch.h"

/* Whether one launch can make silu_mul of the halves of the product's outputs, which silu_mul drops. */
bool qrn_cuda_wgmma_makes_silu(const struct qrn_cuda *cuda, const struct qrn_matmul_args *product,
                               const struct qrn_silu_mul_args *silu);
/* Queues that.  Tiles have other rows of weights then, so that sums of tiles that are cut may be made in another order. */
void qrn_cuda_wgmma_silu(struct qrn_cuda_stream *s, const struct qrn_matmul_args *product,
                         const struct qrn_silu_mul_args *silu, bool weights_stay);

#endif
