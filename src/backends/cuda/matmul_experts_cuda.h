/* SPDX-License-Identifier: MIT
 * What products by expert of packed weights with bf16 x are given on Hopper, where weights become bf16 in
 * registers. */
#ifndef QUERN_BACKENDS_CUDA_MATMUL_EXPERTS_CUDA_H
#define QUERN_BACKENDS_CUDA_MATMUL_EXPERTS_CUDA_H

#include "backends/cuda/matmul_cuda.h"
#include "backends/cuda/params_cuda.h"

QRN_PARAMS_BEGIN

/* A tile is 64 rows of weights of each of four teams by up to 128 of x.  A stage of the ring in shared memory is 128 k of
 * it: x as two tiles of 64 k, panels of all groups of 32 rows.  ITEMS: tiles that are known ahead. */
enum {
    QRN_EXPERTS_TEAMS = 4,
    QRN_EXPERTS_WEIGHTS = 64 * QRN_EXPERTS_TEAMS,
    QRN_EXPERTS_GROUPS = QRN_EXPERTS_WEIGHTS / QRN_PANEL_ROWS,
    QRN_EXPERTS_MOST_X = 128,
    QRN_EXPERTS_HALF_BYTES = QRN_EXPERTS_MOST_X * 128,
    QRN_EXPERTS_X_BYTES = 2 * QRN_EXPERTS_HALF_BYTES,
    QRN_EXPERTS_MOST_STAGES = 4,
    QRN_EXPERTS_MOST_PRODUCTS = 2,
    QRN_EXPERTS_ITEMS = 3,
    QRN_EXPERTS_COPIERS = 3, /* warps */
    QRN_EXPERTS_MULTIPLIERS = 128 * QRN_EXPERTS_TEAMS,
    QRN_EXPERTS_THREADS = QRN_EXPERTS_MULTIPLIERS + 32 * (QRN_EXPERTS_COPIERS + 1)
};

/* Weights and where results go, of one of several products that are alike in all else. */
struct qrn_experts_product {
    uint64_t packed, out;
};

struct qrn_matmul_experts_params {
    struct qrn_matmul_params job; /* slots sorted, tiles of them even */
    struct qrn_experts_product products[QRN_EXPERTS_MOST_PRODUCTS];
    uint64_t x; /* rows of bf16 */
    int32_t x_row_bytes, out_row_bytes;
    int32_t n_weight_tiles, n_all_tiles; /* of a product, of all */
    int32_t n_panels, rest;
    int32_t n_stages, stage_bytes;
};

QRN_PARAMS_END

#endif
