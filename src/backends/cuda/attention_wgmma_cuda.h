/* SPDX-License-Identifier: MIT
 * What the attention kernels for Hopper's tensor cores are given. */
#ifndef QUERN_BACKENDS_CUDA_ATTENTION_WGMMA_CUDA_H
#define QUERN_BACKENDS_CUDA_ATTENTION_WGMMA_CUDA_H

#include "backends/cuda/attention_cuda.h"
#include "backends/cuda/params_cuda.h"
#include "backends/cuda/tensor_map_cuda.h"

QRN_PARAMS_BEGIN

/* Rows of a tile, (token, head of a group) each; keys that are taken at once; copies of those. */
enum { QRN_WGMMA_ROWS = 128, QRN_WGMMA_STAGES = 2, QRN_WGMMA_THREADS = 384 };
#define QRN_WGMMA_KEYS(d) ((d) == 256 ? 64 : 128)
/* Shared memory: queries, keys and values, what is small, and to align them to an atom. */
#define QRN_WGMMA_SHARED(d) \
    (2 * (d) * (QRN_WGMMA_ROWS + 2 * QRN_WGMMA_STAGES * QRN_WGMMA_KEYS(d)) + 3072 + 1024)

/* Of plain buffers: boxes of 64 elements x QRN_WGMMA_KEYS keys, matrices are [batch][kv head].  Of pages:
 * maps of anywhere, of 64 keys x D elements, and of D x 64 in boxes of 64 x 64. */
struct qrn_attention_wgmma_params {
    struct qrn_tensor_map k, v;
    struct qrn_attention_params a;
    int32_t ahead; /* blocks of threads that run at once: queries are asked for so far ahead */
    uint8_t rest[116];
};

QRN_PARAMS_END

#endif
