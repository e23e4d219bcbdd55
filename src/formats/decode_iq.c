/* SPDX-License-Identifier: MIT
 * Decoders of the grid formats: runs of 8 values are points of a fixed grid, given by their number,
 * with signs kept apart (IQ2, IQ3) or a common shift (IQ1). */
#include "formats/block_codecs.h"
#include "formats/block_tables.h"

/* Negated where bit j of signs is set, without a branch: signs are random. */
static float with_sign(float x, unsigned signs, int j)
{
    return qrn_bits_float(qrn_float_bits(x) ^ (signs >> j & 1u) << 31);
}

/* Eight values: scale * level. */
static void put_iq2(uint16_t point, float scale, unsigned signs, float *restrict dst)
{
    for (int j = 0; j < 8; j++) {
        const float x = scale * (float)qrn_iq2_levels[point >> 2 * j & 3];
        dst[j] = with_sign(x, signs, j);
    }
}

/* Two grid points make a run of eight. */
static void put_iq3(const int8_t *levels, uint16_t first, uint16_t second, float scale,
                    unsigned signs, float *restrict dst)
{
    const uint32_t points = first | (uint32_t)second << 16;
    for (int j = 0; j < 8; j++) {
        const float x = scale * (float)levels[points >> 4 * j & 7];
        dst[j] = with_sign(x, signs, j);
    }
}

static void put_iq1(uint16_t point, float scale, float shift, float *restrict dst)
{
    for (int j = 0; j < 8; j++)
        dst[j] = scale * ((float)qrn_iq1_levels[point >> 2 * j & 3] + shift);
}

/* The scale that 4 bits give: d * (code + 1/2) / 4. */
static float iq2_scale(float d, unsigned code)
{
    return d * (0.5f + (float)code) * 0.25f;
}

/* {f16 d; 8 x {u8 point[4]; u32 signs_and_scale}}: four times 7 bits of signs, 4 bits of scale. */
void qrn_decode_iq2_xxs(const void *src, float *restrict dst, size_t n)
{
    for (const uint8_t *b = src; n >= 256; n -= 256, b += 66) {
        const float d = qrn_block_half(b);
        for (const uint8_t *q = b + 2; q < b + 66; q += 8) {
            const uint32_t packed = qrn_block_u32(q + 4);
            const float scale = iq2_scale(d, packed >> 28);
            for (int r = 0; r < 4; r++, dst += 8)
                put_iq2(qrn_iq2_xxs_grid[q[r]], scale, qrn_iq_signs[packed >> 7 * r & 127], dst);
        }
    }
}

/* {f16 d; u16 qs[32]; u8 scales[8]}: 9 bits of point and 7 of signs; a nibble of scale for each two
 * runs. */
void qrn_decode_iq2_xs(const void *src, float *restrict dst, size_t n)
{
    for (const uint8_t *b = src; n >= 256; n -= 256, b += 74) {
        const float d = qrn_block_half(b);
        for (int r = 0; r < 32; r++, dst += 8) {
            const unsigned q = qrn_block_u16(b + 2 + 2 * r);
            const float scale = iq2_scale(d, b[66 + r / 4] >> 4 * (r / 2 % 2) & 15u);
            put_iq2(qrn_iq2_xs_grid[q & 511], scale, qrn_iq_signs[q >> 9], dst);
        }
    }
}

/* {f16 d; u8 qs[32], signs[32], qh[8], scales[8]}: 10-bit points, the upper two bits in qh. */
void qrn_decode_iq2_s(const void *src, float *restrict dst, size_t n)
{
    for (const uint8_t *b = src; n >= 256; n -= 256, b += 82) {
        const float d = qrn_block_half(b);
        for (int r = 0; r < 32; r++, dst += 8) {
            const unsigned high = b[66 + r / 4] >> 2 * (r % 4) & 3u;
            const float scale = iq2_scale(d, b[74 + r / 4] >> 4 * (r / 2 % 2) & 15u);
            put_iq2(qrn_iq2_s_grid[b[2 + r] | high << 8], scale, b[34 + r], dst);
        }
    }
}

/* {f16 d; u8 qs[64]; u32 signs_and_scale[8]} */
void qrn_decode_iq3_xxs(const void *src, float *restrict dst, size_t n)
{
    for (const uint8_t *b = src; n >= 256; n -= 256, b += 98) {
        const float d = qrn_block_half(b);
        for (int r = 0; r < 32; r++, dst += 8) {
            const uint8_t *q = b + 2 + 2 * r;
            const uint32_t packed = qrn_block_u32(b + 66 + 4 * (r / 4));
            const float scale = d * (0.5f + (float)(packed >> 28)) * 0.5f;
            put_iq3(qrn_iq3_xxs_levels, qrn_iq3_xxs_grid[q[0]], qrn_iq3_xxs_grid[q[1]], scale,
                    qrn_iq_signs[packed >> 7 * (r % 4) & 127], dst);
        }
    }
}

/* {f16 d; u8 qs[64], qh[8], signs[32], scales[4]}: 9-bit points; a nibble of scale for each four
 * runs. */
void qrn_decode_iq3_s(const void *src, float *restrict dst, size_t n)
{
    for (const uint8_t *b = src; n >= 256; n -= 256, b += 110) {
        const float d = qrn_block_half(b);
        for (int r = 0; r < 32; r++, dst += 8) {
            const uint8_t *q = b + 2 + 2 * r;
            const unsigned high = (unsigned)b[66 + r / 4] >> 2 * (r % 4);
            const int code = b[106 + r / 8] >> 4 * (r / 4 % 2) & 15;
            put_iq3(qrn_iq3_s_levels, qrn_iq3_s_grid[q[0] | (high & 1) << 8],
                    qrn_iq3_s_grid[q[1] | (high & 2) << 7], d * (float)(1 + 2 * code), b[74 + r],
                    dst);
        }
    }
}

/* {f16 d; u8 qs[32]; u16 qh[8]}: of each qh four times 3 bits of points, 3 of scale, the shift's
 * sign. */
void qrn_decode_iq1_s(const void *src, float *restrict dst, size_t n)
{
    for (const uint8_t *b = src; n >= 256; n -= 256, b += 50) {
        const float d = qrn_block_half(b);
        for (int r = 0; r < 32; r++, dst += 8) {
            const unsigned packed = qrn_block_u16(b + 34 + 2 * (r / 4));
            const unsigned point = b[2 + r] | (packed >> 3 * (r % 4) & 7) << 8;
            const float scale = d * (float)(2 * (packed >> 12 & 7) + 1);
            put_iq1(qrn_iq1_grid[point], scale, packed & 0x8000 ? -0.125f : 0.125f, dst);
        }
    }
}

/* {u8 qs[32], qh[16]; u16 scales[4]}: a nibble of qh for each run (3 bits of point, the shift's
 * sign); of each scales four times 3 bits, one for two runs, and above them a nibble of the f16. */
void qrn_decode_iq1_m(const void *src, float *restrict dst, size_t n)
{
    for (const uint8_t *b = src; n >= 256; n -= 256, b += 56) {
        unsigned d_bits = 0;
        for (int i = 0; i < 4; i++)
            d_bits |= (unsigned)(qrn_block_u16(b + 48 + 2 * i) >> 12) << 4 * i;
        const float d = qrn_f16_to_float((uint16_t)d_bits);
        for (int r = 0; r < 32; r++, dst += 8) {
            const unsigned packed = qrn_block_u16(b + 48 + 2 * (r / 8));
            const unsigned nibble = b[32 + r / 2] >> 4 * (r % 2) & 15u;
            const float scale = d * (float)(2 * (packed >> 3 * (r % 8 / 2) & 7) + 1);
            put_iq1(qrn_iq1_grid[b[r] | (nibble & 7) << 8], scale, nibble & 8 ? -0.125f : 0.125f,
                    dst);
        }
    }
}
