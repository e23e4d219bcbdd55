/* SPDX-License-Identifier: MIT
 * Encoders whose 4-bit codes name one of sixteen levels: IQ4_NL, IQ4_XS, MXFP4, NVFP4. */
#include "formats/block_codecs.h"
#include "formats/block_tables.h"

#include <math.h>

#define MIN_MAGNITUDE 1e-15f /* what is smaller is taken for zero */

/* The codes of the levels nearest to inverse * x, 32 of them; of two equally near, the upper.
 * Levels ascend and are counted, not searched, for all values at once: a search of random values
 * cannot be predicted. */
static void nearest_iq4(const float *x, float inverse, int32_t codes[32])
{
    float scaled[32];
    for (int j = 0; j < 32; j++) {
        scaled[j] = inverse * x[j];
        codes[j] = 1;
    }
    for (int i = 1; i < 15; i++) {
        const float level = (float)qrn_iq4_levels[i];
        for (int j = 0; j < 32; j++) codes[j] += scaled[j] < level ? 0 : 1;
    }
    for (int j = 0; j < 32; j++) {
        const float below = scaled[j] - (float)qrn_iq4_levels[codes[j] - 1];
        const float above = (float)qrn_iq4_levels[codes[j]] - scaled[j];
        codes[j] -= below < above;
    }
}

/* The sums of the fit x ~ scale * level, weights x^2, for the codes of one inverse scale. */
static void iq4_sums(const float *x, float inverse, float *sum_qx, float *sum_q2)
{
    int32_t codes[32];
    nearest_iq4(x, inverse, codes);
    *sum_qx = *sum_q2 = 0;
    for (int j = 0; j < 32; j++) {
        const float q = (float)qrn_iq4_levels[codes[j]], w = x[j] * x[j];
        *sum_qx += w * q * x[j];
        *sum_q2 += w * q * q;
    }
}

/* The scale of 32 values: the extreme is tried at and around the ends of the levels. */
static float fit_iq4(const float *x)
{
    float most = 0, max = 0;
    for (int j = 0; j < 32; j++)
        if (fabsf(x[j]) > most) {
            most = fabsf(x[j]);
            max = x[j];
        }
    if (most < MIN_MAGNITUDE) return 0;
    float sum_qx, sum_q2;
    iq4_sums(x, 1 / (-max / (float)qrn_iq4_levels[0]), &sum_qx, &sum_q2);
    float d = sum_q2 > 0 ? sum_qx / sum_q2 : 0, best = d * sum_qx;
    for (int t = -7; t <= 7; t++) {
        iq4_sums(x, (float)(t + qrn_iq4_levels[0]) / max, &sum_qx, &sum_q2);
        if (sum_q2 > 0 && sum_qx * sum_qx > best * sum_q2) {
            d = sum_qx / sum_q2;
            best = d * sum_qx;
        }
    }
    return d;
}

static void put_iq4_codes(const float *x, float d, uint8_t *q)
{
    int32_t codes[32];
    nearest_iq4(x, d != 0 ? 1 / d : 0, codes);
    for (int j = 0; j < 16; j++) q[j] = (uint8_t)(codes[j] | codes[j + 16] << 4);
}

void qrn_encode_iq4_nl(const float *restrict src, void *dst, size_t n)
{
    for (uint8_t *b = dst; n >= 32; n -= 32, src += 32, b += 18) {
        const float d = fit_iq4(src);
        qrn_block_put_half(b, d);
        put_iq4_codes(src, d, b + 2);
    }
}

void qrn_encode_iq4_xs(const float *restrict src, void *dst, size_t n)
{
    for (uint8_t *b = dst; n >= 256; n -= 256, src += 256, b += 136) {
        float scales[8], most = 0, max = 0;
        for (int s = 0; s < 8; s++) {
            scales[s] = fit_iq4(src + 32 * s);
            if (fabsf(scales[s]) > most) {
                most = fabsf(scales[s]);
                max = scales[s];
            }
        }
        const float d = -max / 32, inverse = d != 0 ? 1 / d : 0;
        unsigned high = 0;
        memset(b + 4, 0, 4);
        for (int s = 0; s < 8; s++) {
            const int scale = qrn_block_clamp(qrn_block_nearest(inverse * scales[s]), -32, 31);
            const unsigned biased = (unsigned)(scale + 32);
            put_iq4_codes(src + 32 * s, d * (float)scale, b + 8 + 16 * s);
            b[4 + s / 2] |= (uint8_t)((biased & 15) << 4 * (s % 2));
            high |= biased >> 4 << 2 * s;
        }
        qrn_block_put_half(b, d);
        qrn_block_put_u16(b + 2, (uint16_t)high);
    }
}

/* The code whose level times d is nearest; of equally near ones, the lowest. */
static int nearest_fp4(float x, float d)
{
    int code = 0;
    float least = fabsf((float)qrn_fp4_levels[0] * d - x);
    for (int i = 1; i < 16; i++) {
        const float error = fabsf((float)qrn_fp4_levels[i] * d - x);
        if (error < least) {
            code = i;
            least = error;
        }
    }
    return code;
}

static void put_fp4_codes(const float *x, float d, int half, uint8_t *q)
{
    for (int j = 0; j < half; j++)
        q[j] = (uint8_t)(nearest_fp4(x[j], d) | nearest_fp4(x[j + half], d) << 4);
}

static float magnitude(const float *x, int n)
{
    float most = 0;
    for (int j = 0; j < n; j++)
        if (most < fabsf(x[j])) most = fabsf(x[j]);
    return most;
}

/* The scale puts the largest magnitude between 4 and 8, of which 6 is the last level. */
void qrn_encode_mxfp4(const float *restrict src, void *dst, size_t n)
{
    for (uint8_t *b = dst; n >= 32; n -= 32, src += 32, b += 17) {
        const float most = magnitude(src, 32);
        const float e = most > 0 ? floorf(log2f(most)) - 2 + 127 : 0;
        b[0] = (uint8_t)(e < 0 ? 0 : e > 254 ? 254 : e);
        put_fp4_codes(src, qrn_block_e8m0_half(b[0]), 16, b + 1);
    }
}

/* Unsigned E4M3, halves rounded up.  What rounds to 256 or more becomes 448, the only value used
 * above 240. */
static uint8_t ue4m3(float x)
{
    if (!(x > 0)) return 0;
    const uint32_t bits = qrn_float_bits(x > 448 ? 448 : x);
    const int exponent = (int)(bits >> 23) - 127 + 7;
    if (exponent <= 0) return (uint8_t)qrn_block_clamp((int)(x * 512 + 0.5f), 0, 7);
    const int code = exponent * 8 + (int)(bits >> 20 & 7) + (int)(bits >> 19 & 1);
    return (uint8_t)(code >= 15 * 8 ? 0x7e : code);
}

void qrn_encode_nvfp4(const float *restrict src, void *dst, size_t n)
{
    for (uint8_t *b = dst; n >= 64; n -= 64, src += 64, b += 36)
        for (int s = 0; s < 4; s++) {
            b[s] = ue4m3(magnitude(src + 16 * s, 16) / 6);
            put_fp4_codes(src + 16 * s, qrn_block_ue4m3_half(b[s]), 8, b + 4 + 8 * s);
        }
}
