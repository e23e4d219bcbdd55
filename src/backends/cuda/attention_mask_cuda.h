/* SPDX-License-Identifier: MIT
 * What attention_mask and attention_classify_tiles are given. */
#ifndef QUERN_BACKENDS_CUDA_ATTENTION_MASK_CUDA_H
#define QUERN_BACKENDS_CUDA_ATTENTION_MASK_CUDA_H

#include <stdint.h>

#include "backends/cuda/params_cuda.h"

QRN_PARAMS_BEGIN

/* Strides in elements. */
struct qrn_attention_mask_params {
    uint64_t mask; /* written by attention_mask, read by the other; 0: none */
    uint8_t *classes;
    int64_t mask_stride, classes_stride;
    int64_t n_tokens, n_kv, q_offset, window, tile_q, tile_k, n_tiles_q, n_tiles_k;
    int32_t dtype, causal;
};

QRN_PARAMS_END

#endif
