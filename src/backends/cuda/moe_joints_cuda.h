/* SPDX-License-Identifier: MIT
 * What the joints of experts are given. */
#ifndef QUERN_BACKENDS_CUDA_MOE_JOINTS_CUDA_H
#define QUERN_BACKENDS_CUDA_MOE_JOINTS_CUDA_H

#include "backends/cuda/matmul_stream_cuda.h"
#include "backends/cuda/moe_combine_cuda.h"
#include "backends/cuda/params_cuda.h"
#include "backends/cuda/ranking_cuda.h"

QRN_PARAMS_BEGIN

enum { QRN_MOE_SLOTS = 32, QRN_MOE_DOWN_THREADS = 416 /* twelve warps that multiply, one that copies */ };

/* Two products of plain floats, a warp an output. */
struct qrn_moe_router_params {
    struct qrn_matmul_params first, second;
};

/* Weights like those of an expert, and where their results go: of tile i at out + i * out_row bytes. */
struct qrn_moe_part {
    uint64_t packed, out;
    int64_t out_row;
};

/* Tiles are gates of the chosen experts, ups of theirs, then rows of the shared expert's weights, as many as an
 * expert has to a tile. */
struct qrn_moe_gates_params {
    struct qrn_matmul_stream_params stream; /* as of the gates' product alone */
    struct qrn_moe_route_params route;
    struct qrn_moe_part gate, up, shared;
};

/* Rows of gate and up, whose product is rounded to out, and the weights that it meets. */
struct qrn_moe_down_part {
    uint64_t gate, up, out, packed;
    int64_t gate_row, up_row, out_row; /* bytes from a slot's row to the next's */
    int64_t group_bytes;
    int32_t n_slots, n_panels; /* of a slot's row */
};

struct qrn_moe_down_params {
    struct qrn_weights_params w;              /* of an expert */
    struct qrn_moe_down_part experts, shared; /* shared.n_slots 0: none */
    struct qrn_moe_combine_params combine;
    uint64_t ids;
    int64_t n_experts;
    uint32_t flip, rest; /* flip: see matmul_stream_panel.cuh */
};

QRN_PARAMS_END

#endif
