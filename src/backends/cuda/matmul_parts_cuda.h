/* SPDX-License-Identifier: MIT
 * What products of few long rows of bf16 weights with up to 64 rows of x are given on Hopper; k is cut in parts. */
#ifndef QUERN_BACKENDS_CUDA_MATMUL_PARTS_CUDA_H
#define QUERN_BACKENDS_CUDA_MATMUL_PARTS_CUDA_H

#include "backends/cuda/matmul_cuda.h"
#include "backends/cuda/params_cuda.h"
#include "backends/cuda/tensor_map_cuda.h"

QRN_PARAMS_BEGIN

/* A tile is 128 rows of weights by 64 of x; a stage of the ring is 64 k of both. */
enum {
    QRN_PARTS_WEIGHTS = 128,
    QRN_PARTS_X = 64,
    QRN_PARTS_K = 64,
    QRN_PARTS_STAGE = (QRN_PARTS_WEIGHTS + QRN_PARTS_X) * QRN_PARTS_K * 2,
    QRN_PARTS_STAGES = 9,
    QRN_PARTS_WARPS = 8, /* that multiply, half of them 64 rows of weights */
    QRN_PARTS_THREADS = 32 * (QRN_PARTS_WARPS + 1)
};

struct qrn_matmul_parts_params {
    struct qrn_tensor_map x, w;
    struct qrn_matmul_params job; /* one matrix */
    uint64_t sums;                /* of a part: float [row of x][row of weights] */
    int64_t apart;                /* floats from a part's sums to the next one's */
    int32_t n_parts, n_steps;     /* n_steps: stages of all k */
    int32_t n_early;              /* stages whose weights are copied before the launch's turn */
    int32_t lets_next;            /* the next launch's blocks may come when it is this one's turn */
    uint8_t rest[104];
};

QRN_PARAMS_END

#endif
