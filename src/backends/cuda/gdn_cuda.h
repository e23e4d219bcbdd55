/* SPDX-License-Identifier: MIT
 * Tokens of the gated delta rule as device code sees them. */
#ifndef QUERN_BACKENDS_CUDA_GDN_CUDA_H
#define QUERN_BACKENDS_CUDA_GDN_CUDA_H

#include "backends/cuda/params_cuda.h"
#include "backends/cuda/ragged_cuda.h"

QRN_PARAMS_BEGIN

enum { QRN_CUDA_GDN_CHUNK = 64 }; /* QRN_GDN_CHUNK */

/* A tensor [n_tokens, n_heads, d] or [n_tokens, n_heads]: strides of tokens and heads, in elements. */
struct qrn_gdn_tensor {
    const float *data;
    int64_t token, head;
};

struct qrn_gdn_heads {
    int64_t n_k, n_v;
    int32_t tiled, each; /* QRN_HEADS_TILED; value heads of a key head */
};

struct qrn_gdn_tokens {
    struct qrn_gdn_tensor q, k, v, g, beta;
    float *out;
    int64_t out_token, out_head;
    struct qrn_ragged sequences;
    struct qrn_gdn_heads heads;
    int64_t d_k, d_v;
};

QRN_PARAMS_END

#endif
