/* SPDX-License-Identifier: MIT
 * What kv_append and kv_append_paged are given. */
#ifndef QUERN_BACKENDS_CUDA_KV_APPEND_CUDA_H
#define QUERN_BACKENDS_CUDA_KV_APPEND_CUDA_H

#include <stdint.h>

#include "backends/cuda/params_cuda.h"

QRN_PARAMS_BEGIN

/* Keys or values and their cache; strides in bytes. */
struct qrn_kv_append_side {
    uint64_t x, cache;
    int64_t x_token, x_head, cache_head, cache_slot;
    int64_t d;
    int32_t dtype, rest; /* dtype: of the cache */
};

struct qrn_kv_append_params {
    struct qrn_kv_append_side side[2];
    const int32_t *position;
    int64_t n_tokens, n_heads, capacity;
    int32_t ring, rest;
};

/* Sequences in pages, as ops/kv_pages.h has them. */
struct qrn_paged {
    const int32_t *seq_begin, *position;
    const uint64_t *pages;
    int64_t pages_stride, max_pages, n_seqs, n_tokens, n_kv_heads, head_dim, page_offset;
};

struct qrn_kv_append_paged_params {
    struct qrn_paged paged;
    const float *k, *v;
    int64_t k_token, k_head, v_token, v_head; /* elements */
    int32_t half, rest;
};

QRN_PARAMS_END

#endif
