/* SPDX-License-Identifier: MIT
 * What attention_mask is given. */
#ifndef QUERN_BACKENDS_CUDA_ATTENTION_MASK_CUDA_H
#define QUERN_BACKENDS_CUDA_ATTENTION_MASK_CUDA_H

#include "backends/cuda/rows_cuda.h"

struct qrn_attention_mask_params {
    struct qrn_rows_shape shape;
    struct qrn_rows out;
    int64_t q_offset, window; /* window 0: none */
    int64_t pieces_per_row;   /* of 128 elements */
    int64_t n_pieces;
    int32_t dtype; /* f32 or bf16 */
    int32_t causal;
};

#endif
