/* SPDX-License-Identifier: MIT
 * What products of many rows on Hopper's tensor cores are given; how their tiles are cut. */
#ifndef QUERN_BACKENDS_CUDA_MATMUL_WGMMA_CUDA_H
#define QUERN_BACKENDS_CUDA_MATMUL_WGMMA_CUDA_H

#include "backends/cuda/matmul_cuda.h"
#include "backends/cuda/matmul_silu_cuda.h"
#include "backends/cuda/params_cuda.h"
#include "backends/cuda/tensor_map_cuda.h"

QRN_PARAMS_BEGIN

/* A tile is 128 rows of weights by 256 or 128 of x; a stage is 64 k of both, as bf16. */
enum {
    QRN_WGMMA_WEIGHTS = 128,
    QRN_WGMMA_K = 64,
    QRN_WGMMA_RAW_STAGES = 2, /* panels of each group of 32 rows that wait for their decoding */
    QRN_WGMMA_ADD = 4         /* results of a thread that multiplied whose parts another one adds up */
};

struct qrn_matmul_wgmma_params {
    struct qrn_tensor_map x, w; /* x rounded; weights in rows */
    struct qrn_matmul_params job;
    uint64_t x16; /* x as bf16: rows of matrix 0, of matrix 1 ..; by expert sorted slots */
    int64_t n_x16, x16_stride; /* rows, and elements from one to the next */
    int64_t out_stride;        /* bytes from a row of out to the next, all alike; else 0 */
    struct qrn_silu_params silu; /* of weights in rows, one matrix */
    uint64_t partials;       /* sums of parts, float [tile][part][result of a thread][thread] */
    int32_t n_work, n_whole; /* pairs of tiles; from n_whole on parts of k, or of x only halves, two for a tile */
    int32_t n_weight_tiles;  /* of a matrix */
    int32_t band;            /* tiles of x that meet a tile of weights one after the other */
    int32_t n_parts;         /* that k of a tile is cut in; 0: none is */
    int32_t n_results;       /* of each of 256 threads that multiply */
    uint8_t more[48];
};

QRN_FORM_FUNCTION int qrn_wgmma_stage_bytes(int n_tokens)
{
    return (QRN_WGMMA_WEIGHTS + n_tokens) * QRN_WGMMA_K * 2;
}

/* What fits beside the panels of the type, which are wide with codes of 8 bits, or of 6 with floats. */
QRN_FORM_FUNCTION int qrn_wgmma_stages(int dtype, int n_tokens)
{
    const struct qrn_form f = qrn_form_of(dtype);
    if (f.bits == 0) return n_tokens == 256 ? 4 : 6;
    if (n_tokens < 256) return 5;
    return f.bits == 8 || (f.bits == 6 && f.run == 0) ? 3 : 4;
}

QRN_PARAMS_END

#endif
