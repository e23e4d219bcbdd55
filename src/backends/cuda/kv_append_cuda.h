/* SPDX-License-Identifier: MIT
 * What kv_append is given: once for keys, once for values. */
#ifndef QUERN_BACKENDS_CUDA_KV_APPEND_CUDA_H
#define QUERN_BACKENDS_CUDA_KV_APPEND_CUDA_H

#include "backends/cuda/rows_cuda.h"

struct qrn_kv_append_params {
    struct qrn_rows x;     /* [n_tokens, n_heads, d] f32 */
    struct qrn_rows cache; /* [n_heads, capacity, d] */
    const int32_t *position;
    int64_t n_tokens, n_heads, d, capacity;
    int64_t first;          /* earlier tokens are replaced by later ones of the call */
    int64_t pieces_per_row; /* of 128 elements */
    int64_t n_pieces;
    int32_t cache_dtype; /* f32, f16 or bf16 */
    int32_t ring;
};

#endif
