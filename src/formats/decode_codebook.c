/* SPDX-License-Identifier: MIT
 * Decoders whose 4-bit codes name one of sixteen levels: IQ4_NL, IQ4_XS, MXFP4, NVFP4. */
#include "formats/block_codecs.h"
#include "formats/block_tables.h"

/* 2 * half values from half bytes: low nibbles first, then high ones. */
static void look_up(const uint8_t *q, const int8_t *levels, float d, int half, float *restrict dst)
{
    for (int j = 0; j < half; j++) {
        dst[j] = d * (float)levels[q[j] & 15];
        dst[j + half] = d * (float)levels[q[j] >> 4];
    }
}

/* {f16 d; u8 qs[16]} */
void qrn_decode_iq4_nl(const void *src, float *restrict dst, size_t n)
{
    for (const uint8_t *b = src; n >= 32; n -= 32, b += 18, dst += 32)
        look_up(b + 2, qrn_iq4_levels, qrn_block_half(b), 16, dst);
}

/* {f16 d; u16 scales_h; u8 scales_l[4], qs[128]}: eight 6-bit scales, biased by 32. */
void qrn_decode_iq4_xs(const void *src, float *restrict dst, size_t n)
{
    for (const uint8_t *b = src; n >= 256; n -= 256, b += 136) {
        const float d = qrn_block_half(b);
        const int high = qrn_block_u16(b + 2);
        for (int s = 0; s < 8; s++, dst += 32) {
            const int scale = (b[4 + s / 2] >> 4 * (s % 2) & 15) | (high >> 2 * s & 3) << 4;
            look_up(b + 8 + 16 * s, qrn_iq4_levels, d * (float)(scale - 32), 16, dst);
        }
    }
}

/* {e8m0 d; u8 qs[16]} */
void qrn_decode_mxfp4(const void *src, float *restrict dst, size_t n)
{
    for (const uint8_t *b = src; n >= 32; n -= 32, b += 17, dst += 32)
        look_up(b + 1, qrn_fp4_levels, qrn_block_e8m0_half(b[0]), 16, dst);
}

/* {ue4m3 d[4]; u8 qs[32]}: four sub-blocks of 16 values in 8 bytes.  The tensor's companion
 * ".scale" is the caller's business. */
void qrn_decode_nvfp4(const void *src, float *restrict dst, size_t n)
{
    for (const uint8_t *b = src; n >= 64; n -= 64, b += 36)
        for (int s = 0; s < 4; s++, dst += 16)
            look_up(b + 4 + 8 * s, qrn_fp4_levels, qrn_block_ue4m3_half(b[s]), 8, dst);
}
