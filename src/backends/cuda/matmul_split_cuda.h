/* SPDX-License-Identifier: MIT
 * What products of plain floats with many rows of float32 x are given on Hopper, whose tensor cores multiply them in
 * parts. */
#ifndef QUERN_BACKENDS_CUDA_MATMUL_SPLIT_CUDA_H
#define QUERN_BACKENDS_CUDA_MATMUL_SPLIT_CUDA_H

#include <stdint.h>

#include "backends/cuda/params_cuda.h"

QRN_PARAMS_BEGIN

/* A tile is 64 rows of x by 64 or 128 of weights; a stage is 64 k of both, each as three tiles of bf16. */
enum {
    QRN_SPLIT_X = 64,
    QRN_SPLIT_K = 64,
    QRN_SPLIT_PARTS = 3,
    QRN_SPLIT_MULTIPLIERS = 128,
    QRN_SPLIT_SPLITTERS = 256,
    QRN_SPLIT_THREADS = QRN_SPLIT_MULTIPLIERS + QRN_SPLIT_SPLITTERS,
    QRN_SPLIT_STAGES = 3
};

/* Stages begin at multiples of 1024. */
#define qrn_split_shared_bytes(n_weights) \
    (1024 + QRN_SPLIT_STAGES * QRN_SPLIT_PARTS * (QRN_SPLIT_X + (n_weights)) * 2 * QRN_SPLIT_K)

struct qrn_matmul_split_params {
    uint64_t x, w, out;
    int64_t x_row_bytes, w_row_bytes, out_row_bytes;
    int32_t n_rows, n, n_steps; /* of x, of weights; k in steps of QRN_SPLIT_K */
    int32_t n_weight_tiles;
};

QRN_PARAMS_END

#endif
