/* SPDX-License-Identifier: MIT
 * What gdn_open_chunk is given on Hopper, and what its two kernels hand on. */
#ifndef QUERN_BACKENDS_CUDA_GDN_WGMMA_CUDA_H
#define QUERN_BACKENDS_CUDA_GDN_WGMMA_CUDA_H

#include "backends/cuda/gdn_open_chunk_cuda.h"
#include "backends/cuda/params_cuda.h"
#include "backends/cuda/tensor_map_cuda.h"

QRN_PARAMS_BEGIN

enum {
    QRN_GDN_WGMMA_WIDTH = 128,     /* d_k and d_v */
    QRN_GDN_WGMMA_STAGES = 3,      /* chunks in shared memory */
    QRN_GDN_WGMMA_PART_STAGES = 4, /* of the parts before the last */
    QRN_GDN_WGMMA_JOINED = 16,     /* columns of a block */
    QRN_GDN_PREPARE_AT_ONCE = 5,   /* blocks of a multiprocessor */
    QRN_GDN_PREPARE_HEADS = 4,     /* value heads of a block of gdn_open_prepare, or fewer */
    QRN_GDN_ROUND_ROWS = 4,        /* of a warp at once, where tensors are rounded */
    QRN_GDN_WGMMA_SQUARE = 8192,   /* bytes of 64 x 64 bf16 */
    QRN_GDN_SLICES = 5120          /* of a lower triangle of these */
};

/* Shared memory, with what aligns it to 1 KiB: of gdn_open_prepare tiles or triangles, gates of its value
 * heads and pointers; of the others stages of k, a piece and v (in the walk q, too), what
 * lies behind them, and barriers. */
enum {
    QRN_GDN_PREPARE_BYTES =
        4 * QRN_GDN_WGMMA_SQUARE + QRN_GDN_PREPARE_HEADS * 4 * 64 * 4 + 256 + 1024,
    QRN_GDN_PARTS_BYTES =
        QRN_GDN_WGMMA_PART_STAGES * (5 * QRN_GDN_WGMMA_SQUARE + 3072) + 2048 + 1024
};
#define QRN_GDN_WALK_BYTES(n_groups)                                                 \
    (QRN_GDN_WGMMA_STAGES * ((6 + (n_groups)) * QRN_GDN_WGMMA_SQUARE + 1024) +       \
     (n_groups) * QRN_GDN_WGMMA_SQUARE + 1024 + 1024)

/* Of one chunk and value head.  Rows of a chunk are its tokens 0 .. 63. */
struct qrn_gdn_gates {
    float p[64];        /* rhs = V - p S0 k: exp(G); 0 of open rows */
    float q[64];        /* scale exp(G) */
    float edge[64];     /* exp(G_C - G) */
    float last[4];      /* exp(G_C), four times */
};

/* Lower triangles, by slices of 16 columns: gdn_in_slices. */
struct qrn_gdn_piece {
    uint8_t inverse[QRN_GDN_SLICES]; /* times beta of columns, 1 of open ones: u = inverse rhs */
    uint8_t scores[QRN_GDN_SLICES];  /* scale exp(G_r - G_s) q_r.k_s, s <= r */
    struct qrn_gdn_gates gates;
};

/* Between parts of a sequence of one value head: state of the end = transfer * state of the
 * start + own. Of the first part, whose own state begins with the true one, transfer is a copy
 * of that, and u one of the open rows, which others may write over meanwhile. */
struct qrn_gdn_part {
    float transfer[128 * 128],
        own[128 * 128]; /* [d_k][d_k], [d_k][d_v]; joined, own is the state */
    float u[64 * 128];
};

/* The maps are of bf16: of the call's tensors or of rounded ones.  A sequence has the pieces
 * from number seq_begin / 64 + 2 * sequence on, each of them by key heads, by value heads of a
 * key head. */
struct qrn_gdn_wgmma_params {
    struct qrn_tensor_map q, k, v;
    struct qrn_gdn_open_chunk_params c;
    struct qrn_gdn_piece *pieces;
    int64_t n_numbers;               /* of pieces' */
    int64_t first_k_head, n_k_heads; /* this launch's */
    struct qrn_gdn_part *parts;      /* of each sequence's value heads, n_parts each */
    uint8_t *open_keys; /* of each sequence and key head, if rows of its first chunk are open, that chunk's
                           keys as they lie in shared memory: the old rows are then read no more */
    int32_t ratio;      /* value heads of a key head */
    int32_t n_shares;   /* of these, for gdn_open_prepare */
    int32_t n_parts;                 /* of a sequence, worked on at once; 1: parts is not used */
    int32_t out_is_bf16, out_is_aligned; /* rows of out, to 16 bytes */
    uint8_t rest[28];
};

/* A tensor [n_tokens, n_heads, 128] of f32 rounded to bf16 without gaps. */
struct qrn_gdn_round_params {
    struct qrn_gdn_tensor from;
    uint32_t *to;
    int64_t n_tokens, n_heads;
};

QRN_PARAMS_END

#endif
