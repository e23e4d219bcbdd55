/* SPDX-License-Identifier: MIT
 * The one expression of products with rounded activations (docs/ops/matmul.md): for each 128 k
 *     p = fma((float)isum, d, p), p = fma((float)tsum, m, p)     for each run of blocks under a head
 *     acc = fma(p, d_x, acc)                                     k ascending
 * where isum and tsum are integers, exact in any order; so every kernel has the same bits. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_PRODUCTS_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_PRODUCTS_CUH

#include "backends/cuda/device/weights.cuh"

/* The sums of a run. */
struct qrn_run_sums {
    int isum, tsum;
};

static __device__ __forceinline__ constexpr bool qrn_has_min(const qrn_form &f)
{
    return f.head == QRN_HEAD_PAIR || f.head == QRN_HEAD_SCALES;
}

/* A block (levels) with 32 codes of x; sums: of the first 16 of them, of the other 16. */
static __device__ __forceinline__ void qrn_add_block(const qrn_form &f, const qrn_block &b,
                                                     const uint32_t (&x)[8], int sum0, int sum1,
                                                     qrn_run_sums &to)
{
    int low = 0, high = 0;
#pragma unroll
    for (int w = 0; w < 4; w++) {
        low = __dp4a((int)b.q[w], (int)x[w], low);
        high = __dp4a((int)b.q[4 + w], (int)x[4 + w], high);
    }
    if (f.sub == QRN_SUB_HALVES || f.sub == QRN_SUB_HALVES_MIN) {
        to.isum += b.s[0] * (low + f.base * sum0) + b.s[1] * (high + f.base * sum1);
        if (f.sub == QRN_SUB_HALVES_MIN) to.tsum += b.t[0] * sum0 + b.t[1] * sum1;
        return;
    }
    const int dot = low + high + f.base * (sum0 + sum1);
    to.isum += f.sub == QRN_SUB_NONE ? dot : b.s[0] * dot;
    if (qrn_has_min(f)) to.tsum += f.sub == QRN_SUB_NONE ? sum0 + sum1 : b.t[0] * (sum0 + sum1);
}

/* At the end of a run. */
static __device__ __forceinline__ void qrn_end_run(const qrn_form &f, float d, float m,
                                                   qrn_run_sums &sums, float &p)
{
    p = fmaf((float)sums.isum, d, p);
    if (qrn_has_min(f)) p = fmaf((float)sums.tsum, m, p);
    sums.isum = sums.tsum = 0;
}

#endif
