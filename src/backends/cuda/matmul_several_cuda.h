/* SPDX-License-Identifier: MIT
 * What products of bf16 weights with up to 64 rows of x are given on Hopper. */
#ifndef QUERN_BACKENDS_CUDA_MATMUL_SEVERAL_CUDA_H
#define QUERN_BACKENDS_CUDA_MATMUL_SEVERAL_CUDA_H

#include "backends/cuda/matmul_cuda.h"
#include "backends/cuda/params_cuda.h"
#include "backends/cuda/tensor_map_cuda.h"

QRN_PARAMS_BEGIN

/* A tile is up to 192 rows of weights, whole groups of 32, by all rows of x, half of which a warp has; a slot
 * of the ring is 128 k of both, each in two boxes of a map. */
enum {
    QRN_SEVERAL_MOST_GROUPS = 6, /* of a tile */
    QRN_SEVERAL_MOST_WARPS = 2 * QRN_SEVERAL_MOST_GROUPS,
    QRN_SEVERAL_MOST_COLUMNS = 4, /* eight rows of x each, of a warp */
    QRN_SEVERAL_BOX_K = 64,
    QRN_SEVERAL_SLOTS = 8 /* at most */
};

struct qrn_matmul_several_params {
    struct qrn_tensor_map x, w;
    struct qrn_matmul_params job; /* one matrix */
    int32_t n_groups, n_tiles;    /* of a tile; of the matrix */
    int32_t n_panels, n_slots;
    int32_t n_early, n_asked; /* panels that are copied before its turn, no more than slots; or asked for */
    uint8_t rest[112];
};

/* Of 128 k. */
QRN_FORM_FUNCTION int qrn_several_slot_bytes(int n_groups, int n_x)
{
    return (n_groups * QRN_PANEL_ROWS + n_x) * QRN_PANEL_K * 2;
}

QRN_PARAMS_END

#endif
