/* SPDX-License-Identifier: MIT
 * softmax: a block takes a row; its maximum, the sum, the quotients. */
#include "backends/cuda/device/rows.cuh"
#include "backends/cuda/softmax_cuda.h"

enum { WARPS = 8 };

static __device__ __forceinline__ void load_scores(const qrn_softmax_params &p, const float *x,
                                                   const char *mask, int64_t i, float (&s)[4])
{
    const int64_t d = p.shape.d;
    qrn_load4(x, i, d, s);
#pragma unroll
    for (int j = 0; j < 4; j++) s[j] *= p.scale;
    if (!mask) return;
    float more[4];
    qrn_load4_of(p.mask_dtype, mask, i, d, more);
#pragma unroll
    for (int j = 0; j < 4; j++) s[j] += more[j];
}

QRN_DEVICE_FUNCTION(qrn_softmax, 256, 4, qrn_softmax_params)
{
    __shared__ float shared[WARPS];
    const int64_t d = p.shape.d;
    const int64_t begin = 4 * (int64_t)threadIdx.x, step = 4 * WARPS * 32;
    for (int64_t r = blockIdx.x; r < p.n_rows; r += gridDim.x) {
        const float *x = (const float *)qrn_row(p.x, p.shape, r);
        const char *mask = qrn_row(p.mask, p.shape, r);
        float *out = (float *)qrn_row(p.out, p.shape, r);
        const float infinity = __uint_as_float(0x7f800000u);
        float most = -infinity, sum = 0.0f, s[4];
        bool nan = false;
        for (int64_t i = begin; i < d; i += step) {
            load_scores(p, x, mask, i, s);
#pragma unroll
            for (int j = 0; j < 4; j++)
                if (i + j < d) {
                    most = fmaxf(most, s[j]);
                    nan = nan || s[j] != s[j];
                }
        }
        most = qrn_block_max<WARPS>(most, shared);
        /* A row of -inf alone gives zeros; a NaN in it gives NaN. */
        const bool empty = most == -infinity;
        for (int64_t i = begin; i < d; i += step) {
            load_scores(p, x, mask, i, s);
#pragma unroll
            for (int j = 0; j < 4; j++)
                if (i + j < d && !empty) sum += qrn_exp(s[j] - most);
        }
        if (nan) sum = __uint_as_float(0x7fc00000u);
        sum = qrn_block_sum<WARPS>(sum, shared);
        for (int64_t i = begin; i < d; i += step) {
            load_scores(p, x, mask, i, s);
#pragma unroll
            for (int j = 0; j < 4; j++)
                s[j] = sum == 0.0f ? 0.0f : empty ? sum : qrn_exp(s[j] - most) / sum;
            qrn_store4(out, i, d, s);
        }
    }
}
