/* SPDX-License-Identifier: MIT
 * Storing a token's keys and values in pages. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_KV_APPEND_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_KV_APPEND_CUH

#include "backends/cuda/device/paged.cuh"
#include "backends/cuda/device/numbers.cuh"

/* This layer's part of the page that token t belongs to, and its slot there; NULL: none. */
static __device__ __forceinline__ char *qrn_paged_page_of(const qrn_paged &p, int64_t t, int *slot)
{
    qrn_paged_seq s;
    const int64_t seq = qrn_paged_find(p, t);
    const bool good = qrn_paged_seq_at(p, seq, &s);
    const int64_t stands = s.position + t - s.first;
    if (!good || t < s.first || t >= s.first + s.n_new) return nullptr;
    *slot = (int)(stands % QRN_PAGE);
    return qrn_paged_page(p, seq, stands / QRN_PAGE);
}

/* Element i of a head, which is of halves or of floats. */
static __device__ __forceinline__ void qrn_paged_put(char *head, int half, int64_t i, float x)
{
    if (half)
        ((uint16_t *)head)[i] = qrn_f16_of_float(x);
    else
        ((float *)head)[i] = x;
}

#endif
