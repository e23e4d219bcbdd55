/* SPDX-License-Identifier: MIT
 * What the attention kernels for Hopper's tensor cores are given. */
#ifndef QUERN_BACKENDS_CUDA_ATTENTION_WGMMA_CUDA_H
#define QUERN_BACKENDS_CUDA_ATTENTION_WGMMA_CUDA_H

#include "backends/cuda/attention_cuda.h"
#include "backends/cuda/params_cuda.h"
#include "backends/cuda/tensor_map_cuda.h"

QRN_PARAMS_BEGIN

/* Rows of a tile, (token, head of a group) each, of which a warpgroup has half; places for those of a warpgroup; keys
 * that are taken at once; copies of those. */
enum { QRN_WGMMA_ROWS = 128, QRN_WGMMA_PLACES = 3, QRN_WGMMA_STAGES = 2, QRN_WGMMA_THREADS = 384 };
#define QRN_WGMMA_KEYS(d) ((d) == 256 ? 64 : 128)
/* Shared memory: queries, keys and values, what is small, and to align them to an atom.  All that there is for heads of
 * 256. */
#define QRN_WGMMA_SHARED(d)                                                                     \
    (2 * (d) *                                                                                  \
         (QRN_WGMMA_PLACES * (QRN_WGMMA_ROWS / 2) + 2 * QRN_WGMMA_STAGES * QRN_WGMMA_KEYS(d)) + \
     2048 + 1024)

/* Of plain buffers: boxes of 64 elements x QRN_WGMMA_KEYS keys, matrices are [batch][kv head].  Of pages:
 * maps of anywhere, of 64 keys x D elements, and of D x 64 in boxes of 64 x 64. */
struct qrn_attention_wgmma_params {
    struct qrn_tensor_map k, v;
    struct qrn_attention_params a;
    uint64_t n_taken; /* uint32_t, of tiles beside each block's first; 0 between launches */
    int32_t n_tiles;  /* of all batches or sequences and kv heads */
    uint8_t rest[108];
};

QRN_PARAMS_END

#endif
