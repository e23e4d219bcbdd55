/* SPDX-License-Identifier: MIT
 * Panels of packed weights made bf16 in shared memory, as wgmma reads it. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_MATMUL_DECODE_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_MATMUL_DECODE_CUH

#include "backends/cuda/device/panels.cuh"
#include "backends/cuda/device/wgmma.cuh"

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

/* 64 k of a panel in shared memory, of the row that is lane's, to row `row` of a tile filled by k.  All is
 * loaded before anything is stored, which might be the same memory for all that the compiler knows. */
static __device__ __forceinline__ void qrn_decode_half_panel(const qrn_panel_form &form, const uint8_t *panel,
                                                             int lane, int half, char *tile, int row)
{
    const bool wraps = form.f.bits == 8 || form.f.levels != QRN_LEVELS_LINEAR;
    qrn_block b[2];
    uint32_t w[8][4];
    qrn_panel_block<true>(form, panel, lane, 2 * half, b[0]);
    qrn_panel_block<true>(form, panel, lane, 2 * half + 1, b[1]);
#pragma unroll
    for (int i = 0; i < 16; i++) { /* four k each */
        const qrn_block &from = b[i / 8];
        const int h = i / 4 % 2;
        const float scale = form.f.sub == QRN_SUB_NONE ? from.d : from.d * (float)from.s[h];
        const float rest = form.f.sub == QRN_SUB_NONE ? from.m : from.m * (float)from.t[h];
        uint32_t four[2];
        qrn_decode_four(from.q[i % 8], wraps, form.f.base, scale, rest, four);
        w[i / 2][i % 2 * 2] = four[0];
        w[i / 2][i % 2 * 2 + 1] = four[1];
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
        *(uint4 *)(tile + qrn_in_atom(row, 16 * i)) = make_uint4(w[i][0], w[i][1], w[i][2], w[i][3]);
}

#endif
