/* SPDX-License-Identifier: MIT
 * What products with many rows of x, bf16, are given on Hopper: of packed weights, which become bf16 in registers, and of
 * bf16 weights in rows. */
#ifndef QUERN_BACKENDS_CUDA_MATMUL_PROMPTS_CUDA_H
#define QUERN_BACKENDS_CUDA_MATMUL_PROMPTS_CUDA_H

#include "backends/cuda/matmul_cuda.h"
#include "backends/cuda/matmul_silu_cuda.h"
#include "backends/cuda/params_cuda.h"
#include "backends/cuda/tensor_map_cuda.h"

QRN_PARAMS_BEGIN

/* A tile is 64 rows of weights of each of two teams by as many rows of x as there are columns, 160 to 256, or 96 to 256
 * where weights are in rows.  Rings in shared memory: of x, stages of 64 k, with weights in rows, too; of packed weights, one
 * for each team, a panel's 128 k of its two groups of 32 rows. */
enum {
    QRN_PROMPTS_TEAMS = 2,
    QRN_PROMPTS_GROUPS = 64 / QRN_PANEL_ROWS,
    QRN_PROMPTS_WEIGHTS = 64 * QRN_PROMPTS_TEAMS,
    QRN_PROMPTS_MOST_X = 256,
    QRN_PROMPTS_K = 64,
    QRN_PROMPTS_MOST_X_STAGES = 8,
    QRN_PROMPTS_MOST_PANELS = 4,
    QRN_PROMPTS_MOST_SHARED = 229888,
    QRN_PROMPTS_MOST_BLOCKS = 144, /* for whose sums there is scratch */
    QRN_PROMPTS_MULTIPLIERS = 128 * QRN_PROMPTS_TEAMS,
    QRN_PROMPTS_THREADS = QRN_PROMPTS_MULTIPLIERS + 128
};

/* Of a stage of x. */
QRN_FORM_FUNCTION int qrn_prompts_x_bytes(int n_columns)
{
    return n_columns * QRN_PROMPTS_K * 2;
}

/* Of a stage of x and of weights in rows; how many there are, in what is aligned to 1024. */
QRN_FORM_FUNCTION int qrn_prompts_rows_bytes(int n_columns)
{
    return (QRN_PROMPTS_WEIGHTS + n_columns) * QRN_PROMPTS_K * 2;
}
QRN_FORM_FUNCTION int qrn_prompts_rows_stages(int n_columns)
{
    return (QRN_PROMPTS_MOST_SHARED - 1024) / qrn_prompts_rows_bytes(n_columns);
}

struct qrn_matmul_prompts_params {
    struct qrn_tensor_map x, w;   /* w: weights in rows */
    struct qrn_matmul_params job; /* one matrix */
    uint64_t sums;                /* that a block hands over, float [block that takes them][result / 4][thread][4] */
    uint64_t handover;            /* whether they are there, uint64_t of each block that takes them [warp],
                                     handover_bytes apart; 0 between launches */
    int64_t out_apart;            /* floats from a row of out to the next */
    struct qrn_silu_params silu;
    int32_t n_weight_tiles, n_x_tiles, band; /* band: tiles of x that meet a tile of weights one after the other */
    int32_t n_panels;                        /* of a tile */
    int32_t n_whole;                         /* tiles that blocks take in turn; what is left is shared */
    int32_t share, n_longer;                 /* panels of a share; blocks that have one more */
    int32_t n_x_stages, n_panel_stages;      /* of packed weights */
    int32_t n_early;                         /* stages whose weights in rows are copied before the launch's turn */
    int32_t handover_bytes;
    uint8_t rest[44];
};

QRN_PARAMS_END

#endif
