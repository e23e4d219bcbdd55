/* SPDX-License-Identifier: MIT
 * How results leave the registers of attention_wgmma_sm90a.cu. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_ATTENTION_WGMMA_RESULTS_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_ATTENTION_WGMMA_RESULTS_CUH

#include "backends/cuda/device/attention_wgmma.cuh"

/* __shfl_xor_sync(x, 1), and a store under a predicate: with the compiler's own, and a branch, it has all that is to be
 * stored at once, and no registers left. */
static __device__ __forceinline__ float wg_of_neighbour(float x)
{
#ifdef QRN_EMULATED
    return __shfl_xor_sync(QRN_ALL_OF_WARP, x, 1);
#else
    float y;
    asm volatile("shfl.sync.bfly.b32 %0, %1, 1, 0x1f, 0xffffffff;" : "=f"(y) : "f"(x));
    return y;
#endif
}
static __device__ __forceinline__ void wg_store_if(bool is_there, float *out, float4 x)
{
#ifdef QRN_EMULATED
    emulated_want_global(out);
    if (is_there) *(float4 *)out = x;
#else
    asm volatile("{.reg .pred p; setp.ne.s32 p, %0, 0; @p st.global.v4.f32 [%1], {%2, %3, %4, %5};}" ::"r"((int)is_there),
                 "l"(out), "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w)
                 : "memory");
#endif
}

/* A warpgroup's rows of a tile; sum: of their weights, this thread's part. */
template <typename kind> struct wg_result {
    static const int D = kind::D, N = kind::N;
    const qrn_attention_params &p;
    const wg_tile &t;
    const int wg;
    const wg_rows &rows;
    const float (&sum)[2];

    /* Where the values of a key are; NULL: nowhere. */
    __device__ __forceinline__ const uint16_t *value_of(int64_t key) const
    {
        if (!kind::paged)
            return (const uint16_t *)p.v + t.of.batch * p.v_batch + key * p.v_token +
                   t.kv_head * p.v_head;
        const char *page = qrn_paged_page(p.paged, t.of.batch, key / PAGE);
        if (!page) return nullptr;
        return (const uint16_t *)page + (p.n_kv_heads + t.kv_head) * (PAGE * D) + key % PAGE * D;
    }

    /* Values that were left out and a row attends to: its out is not finite there. */
    __device__ __forceinline__ void add_bad_values(float (&o)[D / 2]) const
    {
        const int column = qrn_lane() % 4 * 2;
#pragma unroll 1
        for (int block = t.first; block < t.end; block++) {
            if (t.is_full(block)) continue;
#pragma unroll 1
            for (int i = 0; i < N; i++) {
                const int key = block * N + i - column;
                const bool attends[2] = {key >= rows.begin[0] && key < rows.end[0],
                                         key >= rows.begin[1] && key < rows.end[1]};
                if (!attends[0] && !attends[1]) continue;
                const uint16_t *v = value_of(block * N + i);
                if (!v) continue;
#pragma unroll
                for (int j = 0; j < D / 2; j++) {
                    const uint16_t h = v[j / 4 * 8 + column + j % 2];
                    const float y = kind::bf16 ? qrn_float_of_bf16(h) : qrn_float_of_f16(h);
                    if (attends[j / 2 % 2] && !(fabsf(y) <= 3.4e38f)) o[j] += y;
                }
            }
        }
    }

    /* Lanes side by side exchange a and b: an odd one has both a, an even one both b. */
    static __device__ __forceinline__ void exchange(float &a, float &b, bool is_odd)
    {
        const float other = wg_of_neighbour(is_odd ? a : b);
        a = is_odd ? other : a;
        b = is_odd ? b : other;
    }

    /* A row's columns go out four by four, half a line side by side: of two blocks of eight columns each lane has two
     * of both, and takes two more of one from its neighbour. */
    static __device__ __forceinline__ void store_fours(float (&o)[D / 2], float *const (&out)[2])
    {
        const bool is_odd = qrn_lane() % 2;
        const int column = qrn_lane() % 4 / 2 * 4 + is_odd * 8;
#pragma unroll
        for (int j = 0; j < D / 8; j += 2)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                float *const a = o + 4 * j + 2 * h, *const b = a + 4;
                exchange(a[0], b[0], is_odd);
                exchange(a[1], b[1], is_odd);
                wg_store_if(out[h], out[h] + column + 8 * j, make_float4(a[0], a[1], b[0], b[1]));
            }
    }
    static __device__ __forceinline__ void store_ones(const float (&o)[D / 2], float *const (&out)[2])
    {
        const int column = qrn_lane() % 4 * 2;
#pragma unroll
        for (int i = 0; i < D / 2; i++)
            if (out[i / 2 % 2]) out[i / 2 % 2][column + i / 4 * 8 + i % 2] = o[i];
    }

    /* o: sums of values by weights. */
    __device__ __forceinline__ void store(float (&o)[D / 2]) const
    {
        float inverse[2], *out[2];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float l = sum[h];
            l += __shfl_xor_sync(QRN_ALL_OF_WARP, l, 1);
            l += __shfl_xor_sync(QRN_ALL_OF_WARP, l, 2);
            inverse[h] = t.of.bad ? __uint_as_float(0x7fc00000u) : l == 0.0f ? 0.0f : 1.0f / l;
            const int row = wg * GROUP_ROWS + wg_rows::of_group(h);
            out[h] = row < t.of.n_rows ? qrn_attention_out(p, t.of, wg_row(p, t, row)) : nullptr;
        }
#pragma unroll
        for (int i = 0; i < D / 2; i++) o[i] *= inverse[i / 2 % 2];
        if (t.bad) add_bad_values(o);
        if (qrn_is_aligned(p.out, 16) && (p.out_batch | p.out_token | p.out_head) % 4 == 0)
            store_fours(o, out);
        else
            store_ones(o, out);
    }
};

#endif
