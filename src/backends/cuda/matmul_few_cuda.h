/* SPDX-License-Identifier: MIT
 * What products of bf16 weights with few rows of x are given on Hopper. */
#ifndef QUERN_BACKENDS_CUDA_MATMUL_FEW_CUDA_H
#define QUERN_BACKENDS_CUDA_MATMUL_FEW_CUDA_H

#include "backends/cuda/matmul_cuda.h"
#include "backends/cuda/matmul_stream_cuda.h"
#include "backends/cuda/params_cuda.h"
#include "backends/cuda/tensor_map_cuda.h"

QRN_PARAMS_BEGIN

/* A panel is 32 or 16 rows of 128 k, two boxes of a map; warps share panels, the two after them copy and add. */
enum {
    QRN_FEW_WARPS = 8,
    QRN_FEW_THREADS = 32 * (QRN_FEW_WARPS + 2),
    QRN_FEW_COLUMNS = QRN_STREAM_COLUMNS, /* rows of x, at most */
    QRN_FEW_BOX_K = 64,
    QRN_FEW_SLOTS = 24,         /* of the ring, at most: each a panel */
    QRN_FEW_P = 36,             /* floats of a column's sums of a panel, of up to 32 rows */
    QRN_FEW_X = 2 * QRN_PANEL_K /* bytes of 128 k of a row of x */
};

QRN_FORM_FUNCTION int qrn_few_panel_bytes(int rows)
{
    return rows * QRN_PANEL_K * 2;
}

struct qrn_matmul_few_params {
    struct qrn_tensor_map w;
    struct qrn_matmul_params job; /* one matrix */
    uint64_t handover;            /* qrn_stream_handover of each block */
    int64_t x_stride;        /* bytes from a row of x to the next, of aligned fours; 0: not so */
    int32_t share, n_longer; /* panels that a block takes; blocks that take one more */
    int32_t n_panels;        /* of a group of rows */
    int32_t n_rows, n_slots;
    int32_t n_early; /* panels that are copied before the launch before has ended */
    int32_t n_asked; /* if there are none, panels that the second cache is asked for then */
    uint8_t rest[92];
};

QRN_PARAMS_END

#endif
