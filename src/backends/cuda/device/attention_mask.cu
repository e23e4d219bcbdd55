/* SPDX-License-Identifier: MIT
 * attention_mask and attention_classify_tiles: bound by the mask's bytes.  A warp takes 128 keys of
 * a row, or a tile. */
#include "backends/cuda/attention_mask_cuda.h"
#include "backends/cuda/device/rows.cuh"

/* Keys begin .. end - 1 of 0 .. n_kv that query i may attend to, by position. */
static __device__ __forceinline__ void range_of(const qrn_attention_mask_params &p, int64_t i,
                                                int64_t *begin, int64_t *end)
{
    const int64_t at = p.q_offset + i;
    *end = p.causal && at + 1 < p.n_kv ? at + 1 : p.n_kv;
    *begin = p.window && at + 1 > p.window ? at + 1 - p.window : 0;
    if (*end < 0) *end = 0;
}

QRN_DEVICE_FUNCTION(qrn_attention_mask, 256, 2, qrn_attention_mask_params)
{
    const int64_t pieces = (p.n_kv + QRN_PIECE - 1) / QRN_PIECE, step = (int64_t)gridDim.x * 8;
    const int size = p.dtype == QRN_F32 ? 4 : 2;
    for (int64_t w = (int64_t)blockIdx.x * 8 + qrn_warp(); w < p.n_tokens * pieces; w += step) {
        const int64_t i = w / pieces, at = w % pieces * QRN_PIECE + 4 * qrn_lane();
        int64_t begin, end;
        range_of(p, i, &begin, &end);
        float x[4];
#pragma unroll
        for (int j = 0; j < 4; j++)
            x[j] = at + j >= begin && at + j < end ? 0.0f : __uint_as_float(0xff800000u);
        qrn_store4_as(p.dtype, (char *)(uintptr_t)p.mask + i * p.mask_stride * size, at, p.n_kv, x);
    }
}

static __device__ __forceinline__ float mask_at(const qrn_attention_mask_params &p, int64_t i,
                                                int64_t j)
{
    const int64_t at = i * p.mask_stride + j;
    if (!p.mask) return 0.0f;
    if (p.dtype == QRN_F32) return ((const float *)(uintptr_t)p.mask)[at];
    const uint16_t h = ((const uint16_t *)(uintptr_t)p.mask)[at];
    return p.dtype == QRN_BF16 ? qrn_float_of_bf16(h) : qrn_float_of_f16(h);
}

QRN_DEVICE_FUNCTION(qrn_attention_classify_tiles, 256, 2, qrn_attention_mask_params)
{
    const int64_t n = p.n_tiles_q * p.n_tiles_k, step = (int64_t)gridDim.x * 8;
    for (int64_t w = (int64_t)blockIdx.x * 8 + qrn_warp(); w < n; w += step) {
        const int64_t tq = w / p.n_tiles_k, tk = w % p.n_tiles_k;
        const int64_t q_end = min((tq + 1) * p.tile_q, p.n_tokens);
        const int64_t k_begin = tk * p.tile_k, k_end = min(k_begin + p.tile_k, p.n_kv);
        bool any = false, whole = q_end - tq * p.tile_q == p.tile_q && k_end - k_begin == p.tile_k;
        for (int64_t i = tq * p.tile_q; i < q_end; i++) {
            int64_t begin, end;
            range_of(p, i, &begin, &end);
            begin = max(begin, k_begin);
            end = min(end, k_end);
            whole = whole && end - begin == p.tile_k;
            if (!p.mask) any = any || end > begin;
            for (int64_t j = begin + qrn_lane(); p.mask && j < end; j += 32) {
                /* A NaN masks nothing, and is not 0. */
                const float x = mask_at(p, i, j);
                any = any || !(x <= -1e30f);
                whole = whole && x == 0.0f;
            }
        }
        any = __any_sync(QRN_ALL_OF_WARP, any) != 0;
        whole = __all_sync(QRN_ALL_OF_WARP, whole) != 0;
        if (qrn_lane() == 0)
            p.classes[tq * p.classes_stride + tk] = (uint8_t)(!any ? 0 : whole ? 2 : 1);
    }
}
