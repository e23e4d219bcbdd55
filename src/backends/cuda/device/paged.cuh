/* SPDX-License-Identifier: MIT
 * Where tokens of sequences in pages are.  Bounds and positions come from device memory that nobody
 * has checked: what does not fit is found here, and belongs to no page. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_PAGED_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_PAGED_CUH

#include "backends/cuda/device/kernel.cuh"
#include "backends/cuda/kv_append_cuda.h"

enum { QRN_PAGE = 64 };

struct qrn_paged_seq {
    int64_t first, n_new, position; /* of its tokens in the call, their number, where they stand */
};

/* Sequence s; false: its numbers cannot be. */
static __device__ __forceinline__ bool qrn_paged_seq_at(const qrn_paged &p, int64_t s,
                                                        qrn_paged_seq *out)
{
    const int64_t begin = p.seq_begin[s], end = p.seq_begin[s + 1], position = p.position[s];
    *out = qrn_paged_seq{begin, end - begin, position};
    return begin >= 0 && begin <= end && end <= p.n_tokens && position >= 0 &&
           position + (end - begin) <= p.max_pages * QRN_PAGE;
}

/* The last sequence that begins at token t or before. */
static __device__ __forceinline__ int64_t qrn_paged_find(const qrn_paged &p, int64_t t)
{
    int64_t low = 0, high = p.n_seqs;
    while (high - low > 1) {
        const int64_t middle = (low + high) / 2;
        if (p.seq_begin[middle] <= t)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* This layer's part of page i of sequence s; NULL: there is none. */
static __device__ __forceinline__ char *qrn_paged_page(const qrn_paged &p, int64_t s, int64_t i)
{
    const uint64_t address = p.pages[s * p.pages_stride + i];
    return address ? (char *)(uintptr_t)address + p.page_offset : nullptr;
}

#endif
