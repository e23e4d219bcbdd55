/* SPDX-License-Identifier: MIT
 * What products of packed weights with up to 128 rows of x, bf16, are given on Hopper: weights become bf16 in
 * registers. */
#ifndef QUERN_BACKENDS_CUDA_MATMUL_REGISTERS_CUDA_H
#define QUERN_BACKENDS_CUDA_MATMUL_REGISTERS_CUDA_H

#include "backends/cuda/matmul_cuda.h"
#include "backends/cuda/params_cuda.h"
#include "backends/cuda/tensor_map_cuda.h"

QRN_PARAMS_BEGIN

/* A tile is 64 rows of weights of each team of four warps by all rows of x; a stage of the ring, and what shares are
 * counted in, is a panel's 128 k of both. */
enum {
    QRN_REGISTERS_MOST_X = 128,
    QRN_REGISTERS_BOX_K = 64,
    QRN_REGISTERS_COPIERS = 4, /* warps that copy, after those that multiply: one for each team, and as many registers */
    QRN_REGISTERS_MOST_STAGES = 8,
    QRN_REGISTERS_ADD = 4, /* results of a thread that multiplied whose pieces another one adds up */
    QRN_REGISTERS_ADD_THREADS = 128
};

/* With so many columns for rows of x, 32, 64 or 128: teams, as many as there are registers for; rows of a tile; threads that
 * multiply, and all of a block. */
QRN_FORM_FUNCTION int qrn_registers_teams(int n_columns)
{
    return n_columns > 64 ? 3 : 4;
}
QRN_FORM_FUNCTION int qrn_registers_weights(int n_columns)
{
    return 64 * qrn_registers_teams(n_columns);
}
QRN_FORM_FUNCTION int qrn_registers_multipliers(int n_columns)
{
    return 128 * qrn_registers_teams(n_columns);
}
QRN_FORM_FUNCTION int qrn_registers_threads(int n_columns)
{
    return qrn_registers_multipliers(n_columns) + 32 * QRN_REGISTERS_COPIERS;
}

struct qrn_matmul_registers_params {
    struct qrn_tensor_map x;
    struct qrn_matmul_params job; /* one matrix */
    uint64_t sums;                /* of pieces of tiles, float [block][its first, its last][result of a thread][thread];
                                     to_rows: of parts, float [part][row of x][row of weights] */
    int64_t of_part, out_apart;   /* floats of a part's sums; from a row of out to the next */
    int32_t n_tiles, n_panels;    /* of the matrix; of a tile */
    int32_t n_parts;              /* equal ones that each tile is cut in, a block each; 0: shares of all panels of all tiles */
    int32_t share, n_longer;      /* panels of a block's share; blocks that have one more */
    int32_t n_stages, stage_bytes, x_bytes; /* x_bytes: of a stage, which begins with x */
    int32_t n_early;              /* stages whose weights are copied before the launch's turn */
    int32_t to_rows;              /* of parts; nobody adds them up here */
    uint8_t rest[72];
};

/* silu_mul of what the product makes: the first half of an output's columns, and the second. */
struct qrn_matmul_registers_silu_params {
    struct qrn_matmul_registers_params product;
    struct qrn_rows_shape shape; /* of silu_mul */
    struct qrn_rows middle;
    int32_t is_bf16; /* middle is, else it is f32 */
    uint8_t more[60];
};

QRN_PARAMS_END

#endif
