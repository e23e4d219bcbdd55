/* SPDX-License-Identifier: MIT
 * What one launch from a mixer to the next one is given where the layer has experts: one token. */
#ifndef QUERN_BACKENDS_CUDA_MOE_CHAIN_CUDA_H
#define QUERN_BACKENDS_CUDA_MOE_CHAIN_CUDA_H

#include "backends/cuda/matmul_chain_cuda.h"
#include "backends/cuda/moe_joints_cuda.h"

QRN_PARAMS_BEGIN

/* Its links: the mixer's last product; gates and ups of the chosen experts and of the shared one, as one product with
 * the rows of all, which is gated; what is behind them, as one product with the columns of all; the next mixer's first
 * product. */
enum {
    QRN_MOE_CHAIN_EXPERTS = 512,
    QRN_MOE_CHAIN_NORM_PIECES = 2 /* at most; of a warp, as QRN_CHAIN_NORM_PIECES */
};
enum { QRN_MOE_CHAIN_OUT, QRN_MOE_CHAIN_GATES, QRN_MOE_CHAIN_DOWN, QRN_MOE_CHAIN_NEXT };

/* Plain floats in rows that make logits of experts, one after the other in memory and in exchanged words, and the
 * shared expert's gate behind them. */
struct qrn_moe_chain_router {
    uint64_t w, shared_w;         /* first rows */
    uint64_t logits, shared_gate; /* where to store what comes out; 0: nowhere */
    uint64_t ids, weights;        /* the same of those that are chosen */
    int64_t row;                  /* bytes from a row to the next */
    int32_t dtype, row_bytes, n,
        stays; /* n: experts; stays: weights may be read before the launch's turn */
};

/* Rows of the chosen experts, then the shared one's: a part of what a link makes or meets. */
struct qrn_moe_chain_part {
    uint64_t packed; /* weights */
    uint64_t out;    /* floats; 0: nowhere */
};

struct qrn_moe_chain_params {
    struct qrn_matmul_chain_params chain;
    struct qrn_moe_chain_router router;
    struct qrn_moe_chain_part gate, up, shared_gate, shared_up, down, shared_down;
    uint64_t rounded, shared_rounded; /* of silu_mul; 0: nowhere */
    int64_t shared_group_bytes;       /* of what is behind the shared expert */
    int32_t n_chosen, ff, ff_shared;
    int32_t normalise;
};

QRN_PARAMS_END

#endif
