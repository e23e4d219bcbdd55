/* SPDX-License-Identifier: MIT
 * What attention and attention_paged are given.
 *
 * Keys are taken in blocks of 64 and blocks in runs, both on a grid fixed at key 0.  Within a run a
 * row's softmax goes on from block to block; runs begin anew and are merged in ascending order.  So a
 * row's bits are the same whether one block of threads walks all runs or several share them, whose
 * (m, l, o) then go through scratch.  The first 32 blocks are runs by themselves, for a short past is
 * over soonest where each block of keys has threads of its own; then come runs of 2 blocks, and of 4
 * from key 8192 on, for what goes through scratch shall be little beside keys and values. */
#ifndef QUERN_BACKENDS_CUDA_ATTENTION_CUDA_H
#define QUERN_BACKENDS_CUDA_ATTENTION_CUDA_H

#include "backends/cuda/kv_append_cuda.h"
#include "backends/cuda/params_cuda.h"

QRN_PARAMS_BEGIN

enum {
    QRN_ATTENTION_BLOCK = 64,
    QRN_ATTENTION_TILE_Q = 32 /* of classes, whose tiles have 64 keys */
};

/* The run of a block, and the first block of a run. */
#define QRN_ATTENTION_RUN_OF(block) \
    ((block) < 32 ? (block) : (block) < 128 ? 32 + ((block)-32) / 2 : 80 + ((block)-128) / 4)
#define QRN_ATTENTION_FIRST_OF(run) \
    ((run) < 32 ? (run) : (run) < 80 ? 32 + 2 * ((run)-32) : 128 + 4 * ((run)-80))

/* Where runs are merged: dimensions of a block; runs that are copied at once, a thread a run, of few and of many. */
enum {
    QRN_ATTENTION_MERGE_DIMS = 32,
    QRN_ATTENTION_MERGE_FEW = 64,
    QRN_ATTENTION_MERGE_RUNS = 256
};

/* Floats of a row's partial of a run: o, m, l, to whole pieces of 16 bytes. */
#define QRN_ATTENTION_PARTIAL(d) (((d) + 5) / 4 * 4)

/* Shared memory of attention_decode.cuh. */
#define QRN_ATTENTION_DECODE_BYTES(d) (416 * (d) + 5680)

/* Which sequences in pages a launch is for.  Those of many rows may be rounded by another kernel; each
 * sequence's own numbers say which, so that its bits do not hang on the others of the call. */
enum qrn_attention_only { QRN_ATTENTION_ALL, QRN_ATTENTION_ROUNDED, QRN_ATTENTION_EXACT };

/* Rounded are sequences of so many rows for a kv head, and so many tiles of that many rows for all,
 * or so few keys: where tiles are few and keys are many, other kernels share a tile's keys. */
enum {
    QRN_ROUNDED_ROWS = 17,
    QRN_ROUNDED_TILE = 128,
    QRN_ROUNDED_TILES = 32,
    QRN_ROUNDED_KEYS = 4096
};

/* Strides in elements; those of batches are 0 where there is none. */
struct qrn_attention_params {
    struct qrn_paged paged; /* of attention_paged; else paged.pages is NULL */
    const float *q;
    float *out, *partial; /* partial: [batch and token][head][n_runs][o, m, l]; NULL: no split */
    const void *k, *v, *mask;
    const uint8_t *classes;
    int64_t q_batch, q_token, q_head, out_batch, out_token, out_head;
    int64_t k_batch, k_token, k_head, v_batch, v_token, v_head;
    int64_t mask_batch, mask_head, mask_token, classes_stride;
    int64_t n_batch, n_tokens, n_kv, q_offset, window, d_k, d_v;
    int64_t n_tiles, n_runs; /* tiles of rows, for each batch or in all; runs that a row may have */
    int64_t n_heads, n_kv_heads, group;
    int32_t kv_type, mask_type, causal, n_parts; /* n_parts: of d_v */
    int32_t only;                                /* enum qrn_attention_only */
    float scale, softcap;
    int32_t numbers_stay; /* tables are there before what was launched before is done (launch.h) */
};

QRN_PARAMS_END

#endif
