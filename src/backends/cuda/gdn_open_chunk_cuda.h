/* SPDX-License-Identifier: MIT
 * What gdn_open_chunk is given. */
#ifndef QUERN_BACKENDS_CUDA_GDN_OPEN_CHUNK_CUDA_H
#define QUERN_BACKENDS_CUDA_GDN_OPEN_CHUNK_CUDA_H

#include "backends/cuda/gdn_cuda.h"
#include "backends/cuda/norm_cuda.h"
#include "backends/cuda/params_cuda.h"

QRN_PARAMS_BEGIN

enum {
    QRN_GDN_STEP_PANEL = 512,  /* of keys and queries, what is in shared memory at a time */
    QRN_GDN_TILE_COLUMNS = 32, /* of the state, a block's */
    QRN_GDN_TILE_THREADS = 256,
    QRN_GDN_TILE_STRIDE = 68, /* floats from a row of turned keys to the next: few bank conflicts */
    QRN_GDN_TILE_MAX_KEY = 128,
    QRN_GDN_EXACT_BYTES = 163 * 1024,
    QRN_GDN_PRODUCTS_THREADS = 160,
    QRN_GDN_PRODUCTS_BYTES = 2 * QRN_CUDA_GDN_CHUNK * QRN_GDN_TILE_MAX_KEY * 4,
    QRN_GDN_FEW_BYTES = 59392,    /* of a block of gdn_open_few, which has 32 columns of a head */
    QRN_GDN_FEW_ALIGNMENT = 1024, /* wherever copies are boxes of a map */
    QRN_GDN_TOKEN_MOST_BYTES =
        220 * 1024, /* of those of gdn_token that a multiprocessor has at once */
    QRN_GDN_HEAD_AT_ONCE =
        2, /* blocks of gdn_open_head of one launch that a multiprocessor has, beside those of the next */
    QRN_GDN_HEAD_THREADS = 64,
    QRN_GDN_HEAD_HELD = 96, /* rows of a state in registers */
    QRN_GDN_HEAD_BYTES = (128 - QRN_GDN_HEAD_HELD) * 512 + 64 * 528 + 3584,
    QRN_GDN_HEAD_ALONE_BYTES = 112 * 1024, /* where a multiprocessor has one of a launch */
    QRN_GDN_DECODE_STAGES = 6,             /* of 16 KB */
    QRN_GDN_DECODE_ITEMS = 3,              /* heads' tokens */
    QRN_GDN_DECODE_THREADS = 288,
    QRN_GDN_DECODE_BYTES =
        QRN_GDN_DECODE_STAGES * 16384 + QRN_GDN_DECODE_ITEMS * (2176 + 512) + 2048
};

struct qrn_gdn_open_chunk_params {
    struct qrn_gdn_tokens x;
    const int32_t *position;
    const uint64_t *state, *rows; /* tables, strides of sequences */
    int64_t state_stride, rows_stride;
    uint64_t state_offset, rows_offset;
    int64_t n_slices; /* of a head's columns */
    float scale;
    int32_t keeps_later;  /* keys and G are left to qrn_gdn_open_keep */
    int32_t numbers_stay; /* tables are there before what was launched before is done (launch.h) */
    int32_t settled;      /* states and rows too */
};

/* A token's, with the norm of its out behind. */
struct qrn_gdn_open_norm_params {
    struct qrn_gdn_open_chunk_params chunk;
    struct qrn_rms_norm_params norm;
};

/* Of a chunk and key head: k_s k_row and k_s q_row at [row][s] for s up to row; what is behind the next multiple of
 * four is not there. */
struct qrn_gdn_products {
    float kk[QRN_CUDA_GDN_CHUNK][QRN_CUDA_GDN_CHUNK], kq[QRN_CUDA_GDN_CHUNK][QRN_CUDA_GDN_CHUNK];
};

/* Sequence s has chunks from number seq_begin / 64 + 2 * s on, each of them all key heads. */
struct qrn_gdn_exact_params {
    struct qrn_gdn_open_chunk_params c;
    struct qrn_gdn_products *products;
};

QRN_PARAMS_END

#endif
