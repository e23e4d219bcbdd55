/* SPDX-License-Identifier: MIT
 * A row of one head of a token's queries, keys or values, which a warp has in registers from its norm to the page.
 * Bits are those of norm_registers.cu, rope.cu and kv_append.cu. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_ATTENTION_ROW_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_ATTENTION_ROW_CUH

#include "backends/cuda/device/kv_append.cuh"
#include "backends/cuda/device/norm_part.cuh"
#include "backends/cuda/device/rope.cuh"
#include "backends/cuda/attention_rows_cuda.h"

template <int N> struct attention_row {
    const qrn_attention_rows_params &p;
    const int64_t t;
    const int d;
    norm_part<1, N> x;

    __device__ attention_row(const qrn_attention_rows_params &params, int64_t token)
        : p(params), t(token), d((int)params.append.paged.head_dim)
    {
    }

    __device__ __forceinline__ void load_values(int head)
    {
        const float *v = p.append.v + t * p.append.v_token + head * p.append.v_head;
#pragma unroll
        for (int n = 0; n < N; n++) qrn_load4(v, x.begin() + n * x.STRIDE, d, x.v[n]);
    }

    __device__ __forceinline__ void norm(const qrn_attention_rows_side &side,
                                         const norm_part<1, N> &weight)
    {
        const float scale = x.rms_scale(d, side.eps, nullptr);
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                x.v[n][j] *= scale;
                if (side.weight) x.v[n][j] *= weight.v[n][j];
            }
    }

    /* The row, which is in shared memory too: there as well. */
    __device__ __forceinline__ void turn(float *row, const float *cosine, const float *sine)
    {
        __syncwarp();
#pragma unroll 1
        for (int i = qrn_lane(); i < p.rope.n_pairs; i += 32) {
            const int at = i * p.rope.first;
            const float a = row[at], b = row[at + p.rope.second];
            row[at] = a * cosine[i] - b * sine[i];
            row[at + p.rope.second] = b * cosine[i] + a * sine[i];
        }
        __syncwarp();
        x.load(row, d);
    }

    /* To the token's slot; of keys a slot is a column. */
    __device__ __forceinline__ void append(int head, bool values, char *page, int slot) const
    {
        if (!page) return;
        page += ((values ? p.append.paged.n_kv_heads : 0) + head) * QRN_PAGE * d *
                (p.append.half ? 2 : 4);
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int i = x.begin() + n * x.STRIDE + j;
                if (i >= d) continue;
                qrn_paged_put(page, p.append.half, values ? slot * d + i : i * QRN_PAGE + slot,
                              x.v[n][j]);
            }
    }
};

#endif
