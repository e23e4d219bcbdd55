/* SPDX-License-Identifier: MIT
 * What products of many rows of bf16 weights with up to 64 rows of x are given on Hopper: tiles of all k. */
#ifndef QUERN_BACKENDS_CUDA_MATMUL_WHOLE_CUDA_H
#define QUERN_BACKENDS_CUDA_MATMUL_WHOLE_CUDA_H

#include "backends/cuda/matmul_cuda.h"
#include "backends/cuda/params_cuda.h"
#include "backends/cuda/tensor_map_cuda.h"

QRN_PARAMS_BEGIN

/* A tile is 64 rows of x by N of weights for each of one or two groups of four warps.  Half of a group's rows are of each half of the
 * matrix, so that a thread has an output of both: gates and ups.  A step of the ring is 64 k of both. */
enum {
    QRN_WHOLE_X = 64,
    QRN_WHOLE_K = 64,
    QRN_WHOLE_MOST_STEPS = 12,
    QRN_WHOLE_MOST_SHARED = 216 * 1024 /* blocks of a small launch before have room beside */
};

QRN_FORM_FUNCTION int qrn_whole_step_bytes(int n_rows)
{
    return (n_rows + QRN_WHOLE_X) * QRN_WHOLE_K * 2;
}
/* In what is aligned to 1024. */
QRN_FORM_FUNCTION int qrn_whole_steps(int n_rows)
{
    const int fit = (QRN_WHOLE_MOST_SHARED - 1024) / qrn_whole_step_bytes(n_rows);
    return fit < QRN_WHOLE_MOST_STEPS ? fit : (int)QRN_WHOLE_MOST_STEPS;
}
QRN_FORM_FUNCTION int qrn_whole_threads(int n_groups)
{
    return 128 * n_groups + 32;
}

struct qrn_matmul_whole_params {
    struct qrn_tensor_map x, w;
    struct qrn_matmul_params job; /* one matrix */
    int64_t half;                 /* rows of weights before the second half */
    struct qrn_rows_shape shape;  /* with silu_mul: of middle */
    struct qrn_rows middle;       /* silu_mul of the halves' outputs; data 0: there is none */
    int32_t middle_is_bf16;       /* else it is f32 */
    int32_t drops_out;            /* out need not be written, which middle is made of */
    int32_t is_paired;            /* out's rows and their halves, and middle's rows, begin at even elements */
    int32_t n_tiles, n_steps;     /* n_steps: of a tile */
    int32_t n_early;              /* steps whose weights are copied before the launch's turn */
    int32_t x_rows;               /* of a box, to the next 8; what lies behind is nobody's */
    int32_t lets_next;            /* the next launch's blocks may come when it is this one's turn */
    uint8_t rest[32];
};

QRN_PARAMS_END

#endif
