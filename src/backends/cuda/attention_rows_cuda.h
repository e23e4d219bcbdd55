/* SPDX-License-Identifier: MIT
 * What the joint of a token's queries, keys and values is given. */
#ifndef QUERN_BACKENDS_CUDA_ATTENTION_ROWS_CUDA_H
#define QUERN_BACKENDS_CUDA_ATTENTION_ROWS_CUDA_H

#include "backends/cuda/kv_append_cuda.h"
#include "backends/cuda/params_cuda.h"
#include "backends/cuda/rope_cuda.h"

QRN_PARAMS_BEGIN

enum { QRN_ATTENTION_ROWS_WARPS = 4 };

/* Heads of queries or of keys, normed and turned in place; strides in elements. */
struct qrn_attention_rows_side {
    float *x;
    const float *weight; /* NULL: none */
    int64_t token, head;
    float eps;
    int32_t rest;
};

struct qrn_attention_rows_params {
    struct qrn_kv_append_paged_params append;
    struct qrn_attention_rows_side q, k;
    int32_t n_heads; /* of queries */
    int32_t early;   /* positions and pages may be read before the launch's turn */
    struct qrn_rope_params rope; /* of both; its x and out are not looked at */
};

QRN_PARAMS_END

#endif
