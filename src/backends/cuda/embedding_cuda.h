/* SPDX-License-Identifier: MIT
 * What embedding is given. */
#ifndef QUERN_BACKENDS_CUDA_EMBEDDING_CUDA_H
#define QUERN_BACKENDS_CUDA_EMBEDDING_CUDA_H

#include "backends/cuda/params_cuda.h"
#include "backends/cuda/rows_cuda.h"

QRN_PARAMS_BEGIN

struct qrn_embedding_params {
    struct qrn_rows_shape shape; /* of out */
    struct qrn_rows out;
    uint64_t table;
    int64_t table_stride; /* bytes */
    const int32_t *ids;
    int64_t n_vocab;
    int64_t pieces_per_row; /* of 128 elements */
    int64_t n_pieces;
    struct qrn_row_type table_type;
    int32_t rest;
    /* MLX codes: the value is scale * code + bias. */
    uint64_t scales, biases;
    int64_t scales_stride, biases_stride; /* bytes */
    int64_t group;                        /* elements of one scale; 0: no codes */
    int32_t scales_dtype, biases_dtype;   /* f32, f16 or bf16 */
};

QRN_PARAMS_END

#endif
