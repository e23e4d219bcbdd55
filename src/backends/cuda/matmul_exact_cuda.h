/* SPDX-License-Identifier: MIT
 * What products of many rows of x, each with the bits of one, are given on Hopper. */
#ifndef QUERN_BACKENDS_CUDA_MATMUL_EXACT_CUDA_H
#define QUERN_BACKENDS_CUDA_MATMUL_EXACT_CUDA_H

#include "backends/cuda/matmul_cuda.h"
#include "backends/cuda/params_cuda.h"
#include "backends/cuda/tensor_map_cuda.h"

QRN_PARAMS_BEGIN

/* A tile is one or two times 64 rows of weights of each of two teams by 128 of x; of packed weights one time.  A stage of
 * these has of 128 k codes of x, sums, scales (copied from a multiple of four rows on), panels. */
enum {
    QRN_EXACT_TEAMS = 2,
    QRN_EXACT_X = 128,
    QRN_EXACT_BOX_K = 64,
    QRN_EXACT_MULTIPLIERS = 128 * QRN_EXACT_TEAMS, /* threads */
    QRN_EXACT_THREADS = QRN_EXACT_MULTIPLIERS + 128,
    QRN_EXACT_MOST_SHARED = 229888,
    QRN_EXACT_MOST_STAGES = 6,
    QRN_EXACT_CODES_BYTES = QRN_EXACT_X * QRN_PANEL_K * 2,
    QRN_EXACT_SUMS_BYTES = QRN_EXACT_X * 16,
    QRN_EXACT_SCALES_COPIED = (QRN_EXACT_X + 4) * 4,
    QRN_EXACT_SCALES_BYTES = 576
};

struct qrn_matmul_exact_params {
    struct qrn_tensor_map x, w;   /* x: codes, with packed weights; w: weights in rows */
    struct qrn_matmul_params job; /* of one matrix, or by expert; rows of x cut in tiles of QRN_EXACT_X */
    int64_t out_stride;           /* bytes from a row of out to the next */
    int32_t n_work;               /* pairs of tiles */
    int32_t n_weight_tiles;       /* of a matrix */
    int32_t band;                 /* tiles of x that meet a tile of weights one after the other */
    int32_t n_panels;             /* 128 k each */
    /* x of packed weights: f16 [row][k, whole panels]; of each panel and row a float and 16 bytes of sums: of 16 k as f16 if
     * of_halves, else float, of the run of 32 k that ends with each. */
    uint64_t codes, scales, sums;
    int64_t n_x, x_apart; /* rows; from a panel's to the next one's */
    int32_t of_halves, run;
    int32_t stage_bytes, n_stages;
    uint8_t rest[56];
};

/* Rows of weights of a tile, and of a stage of the ring: 64 k of them and of x. */
QRN_FORM_FUNCTION int qrn_exact_weights(int n_blocks)
{
    return 64 * QRN_EXACT_TEAMS * n_blocks;
}
QRN_FORM_FUNCTION int qrn_exact_stage_bytes(int n_blocks)
{
    return (qrn_exact_weights(n_blocks) + QRN_EXACT_X) * QRN_EXACT_BOX_K * 2;
}
QRN_FORM_FUNCTION int qrn_exact_stages(int n_blocks)
{
    return n_blocks == 2 ? 4 : 6;
}

QRN_PARAMS_END

#endif
