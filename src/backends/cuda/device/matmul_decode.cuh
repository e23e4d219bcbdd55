/* SPDX-License-Identifier: MIT
 * Panels of packed weights made bf16 in shared memory, as wgmma reads it. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_MATMUL_DECODE_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_MATMUL_DECODE_CUH

#include "backends/cuda/device/panels.cuh"
#include "backends/cuda/device/wgmma.cuh"

/* Two floats as bf16, the first in the low bits, to the nearest, halves to even. */
static __device__ __forceinline__ uint32_t qrn_bf16_pair(float low, float high)
{
#ifdef QRN_EMULATED
    return qrn_bf16_of_float(low) | (uint32_t)qrn_bf16_of_float(high) << 16;
#else
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
#endif
}

/* Four levels, bytes of q, as weights level * scale + rest; those above 127 are negative if `wraps`.  A
 * byte becomes 2^23 + byte, from which 2^23 is taken: both exact. */
static __device__ __forceinline__ void qrn_decode_four(uint32_t q, bool wraps, int base, float scale,
                                                       float rest, uint32_t (&out)[2])
{
    const float zero = 8388608.0f + (float)((wraps ? 128 : 0) - base);
    float w[4];
    if (wraps) q ^= 0x80808080u;
#pragma unroll
    for (int i = 0; i < 4; i++)
        w[i] = fmaf(__uint_as_float(__byte_perm(q, 0x4b000000u, 0x7440u + (uint32_t)i)) - zero, scale, rest);
    out[0] = qrn_bf16_pair(w[0], w[1]);
    out[1] = qrn_bf16_pair(w[2], w[3]);
}

/* 64 k of a panel in shared memory, of the row that is lane's, to row `row` of a tile filled by k. */
static __device__ __forceinline__ void qrn_decode_half_panel(const qrn_panel_form &form, const uint8_t *panel,
                                                             int lane, int half, char *tile, int row)
{
    const bool wraps = form.f.bits == 8 || form.f.levels != QRN_LEVELS_LINEAR;
#pragma unroll
    for (int j = 0; j < 2; j++) {
        qrn_block b;
        qrn_panel_block<true>(form, panel, lane, 2 * half + j, b);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float scale = b.d * (float)b.s[i / 2], rest = b.m * (float)b.t[i / 2];
            uint32_t low[2], high[2];
            qrn_decode_four(b.q[2 * i], wraps, form.f.base, scale, rest, low);
            qrn_decode_four(b.q[2 * i + 1], wraps, form.f.base, scale, rest, high);
            *(uint4 *)(tile + qrn_in_atom(row, 64 * j + 16 * i)) = make_uint4(low[0], low[1], high[0], high[1]);
        }
    }
}

#endif
