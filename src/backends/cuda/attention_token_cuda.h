/* SPDX-License-Identifier: MIT
 * What the joint of a token's attention is given. */
#ifndef QUERN_BACKENDS_CUDA_ATTENTION_TOKEN_CUDA_H
#define QUERN_BACKENDS_CUDA_ATTENTION_TOKEN_CUDA_H

#include "backends/cuda/attention_cuda.h"
#include "backends/cuda/attention_rows_cuda.h"
#include "backends/cuda/params_cuda.h"
#include "backends/cuda/rows_cuda.h"

QRN_PARAMS_BEGIN

/* Heads of a key head, at most. */
enum { QRN_ATTENTION_TOKEN_HEADS = 8, QRN_ATTENTION_TOKEN_THREADS = 384 };

/* Shared memory, and behind it what is there once for each head. */
#define QRN_ATTENTION_TOKEN_BYTES(d)      (QRN_ATTENTION_DECODE_BYTES(d) + 12 * (d) + 128)
#define QRN_ATTENTION_TOKEN_HEAD_BYTES(d) (4 * ((d) + QRN_ATTENTION_PARTIAL(d)))

struct qrn_attention_token_params {
    struct qrn_attention_rows_params rows;
    struct qrn_attention_params attention;
    struct qrn_rows gate, out; /* of sigmoid_mul: [token][head] */
    uint64_t arrivals;         /* uint32_t [token][kv head], 0 between launches */
    int32_t out_dtype;
    int32_t keeps;        /* what attention gives is stored too */
    int32_t weights_stay; /* weights of norms may be read before the launch's turn */
    int32_t rest;
};

QRN_PARAMS_END

#endif
