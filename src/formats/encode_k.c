/* SPDX-License-Identifier: MIT
 * Encoders of super-blocks of 256 values: Q2_K to Q6_K, Q8_K.
 *
 * Each sub-block is first fitted alone: starting from the scale that its range suggests, nearby
 * scales are tried, the codes they give are refined by weighted least squares, and the best is
 * kept.  The scales (and minima) found are then rounded to small integers times a common f16, and
 * the codes made again with the rounded ones, except where the rounded scale is zero: there the
 * codes of the fit stay.
 *
 * Files made elsewhere are reproduced byte for byte, so the order of float operations is part of
 * the format: products and sums are taken from left to right, as written. */
#include "formats/block_codecs.h"

#include <math.h>

#define MIN_MAGNITUDE 1e-15f /* what is smaller is taken for zero */

struct affine_search {
    int max_code;
    float first, step; /* how far from max_code / range the tried inverse scales start, and go on */
    int n_steps;
    bool absolute_error; /* else squared */
};

static int clamped_code(float x, float min, float inverse, int max_code)
{
    return qrn_block_clamp(qrn_block_nearest(inverse * (x - min)), 0, max_code);
}

/* The weighted distance of scale * code + min from x. */
static float affine_error(const float *x, const float *weight, const uint8_t *codes, int n,
                          float scale, float min, bool absolute)
{
    float error = 0;
    for (int i = 0; i < n; i++) {
        const float diff = scale * (float)codes[i] + min - x[i];
        error += weight[i] * (absolute ? fabsf(diff) : diff * diff);
    }
    return error;
}

/* Fits x ~ scale * code + min with min <= 0 and codes 0..max_code, n <= 32.  Returns the scale and
 * writes -min and the codes. */
static float fit_affine(const struct affine_search *search, const float *x, const float *weight,
                        int n, uint8_t *codes, float *minus_min)
{
    const int max_code = search->max_code;
    float min = x[0], max = x[0], sum_w = weight[0], sum_x = weight[0] * x[0];
    for (int i = 1; i < n; i++) {
        if (x[i] < min) min = x[i];
        if (x[i] > max) max = x[i];
        sum_w += weight[i];
        sum_x += weight[i] * x[i];
    }
    if (min > 0) min = 0;
    if (max == min) {
        memset(codes, 0, (size_t)n);
        *minus_min = -min;
        return 0;
    }
    float inverse = (float)max_code / (max - min), scale = 1 / inverse;
    for (int i = 0; i < n; i++) codes[i] = (uint8_t)clamped_code(x[i], min, inverse, max_code);
    float best = affine_error(x, weight, codes, n, scale, min, search->absolute_error);

    for (int t = 0; t <= search->n_steps; t++) {
        /* min is the best so far, max stays */
        inverse = (search->first + search->step * (float)t + (float)max_code) / (max - min);
        uint8_t tried[32];
        float sum_l = 0, sum_l2 = 0, sum_xl = 0;
        for (int i = 0; i < n; i++) {
            const int code = clamped_code(x[i], min, inverse, max_code);
            const float l = (float)code, w = weight[i];
            tried[i] = (uint8_t)code;
            sum_l += w * l;
            sum_l2 += w * l * l;
            sum_xl += w * l * x[i];
        }
        const float determinant = sum_w * sum_l2 - sum_l * sum_l;
        if (!(determinant > 0)) continue;
        float new_scale = (sum_w * sum_xl - sum_x * sum_l) / determinant;
        float new_min = (sum_l2 * sum_x - sum_l * sum_xl) / determinant;
        if (new_min > 0) {
            new_min = 0;
            new_scale = sum_xl / sum_l2;
        }
        const float error =
            affine_error(x, weight, tried, n, new_scale, new_min, search->absolute_error);
        if (error < best) {
            memcpy(codes, tried, (size_t)n);
            best = error;
            scale = new_scale;
            min = new_min;
        }
    }
    *minus_min = -min;
    return scale;
}

/* The codes of 16 values for one inverse scale, and the sums of the weighted fit, weights x^2. */
static void symmetric_codes(const float *x, float inverse, int half, int *codes, float *sum_lx,
                            float *sum_l2)
{
    *sum_lx = *sum_l2 = 0;
    for (int i = 0; i < 16; i++) {
        codes[i] = qrn_block_clamp(qrn_block_nearest(inverse * x[i]), -half, half - 1);
        const float l = (float)codes[i], w = x[i] * x[i];
        *sum_lx += w * x[i] * l;
        *sum_l2 += w * l * l;
    }
}

static float extreme(const float *x, int n)
{
    float most = 0, value = 0;
    for (int i = 0; i < n; i++)
        if (fabsf(x[i]) > most) {
            most = fabsf(x[i]);
            value = x[i];
        }
    return value;
}

/* Fits 16 values ~ scale * (code - 32), codes 0..63, trying scales around the range's. */
static float fit_symmetric(const float *x, uint8_t *codes)
{
    const int half = 32;
    const float max = extreme(x, 16);
    if (fabsf(max) < MIN_MAGNITUDE) {
        memset(codes, 0, 16);
        return 0;
    }
    int tried[16];
    float sum_lx, sum_l2, scale = 0, best = 0;
    symmetric_codes(x, -(float)half / max, half, tried, &sum_lx, &sum_l2);
    if (sum_l2 != 0) scale = sum_lx / sum_l2;
    best = scale * sum_lx;
    for (int i = 0; i < 16; i++) codes[i] = (uint8_t)(tried[i] + half);
    for (int t = -9; t <= 9; t++) {
        if (t == 0) continue;
        const float inverse = -((float)half + 0.1f * (float)t) / max;
        symmetric_codes(x, inverse, half, tried, &sum_lx, &sum_l2);
        if (sum_l2 > 0 && sum_lx * sum_lx > best * sum_l2) {
            for (int i = 0; i < 16; i++) codes[i] = (uint8_t)(tried[i] + half);
            scale = sum_lx / sum_l2;
            best = scale * sum_lx;
        }
    }
    return scale;
}

/* Fits 16 values ~ scale * (code - 4), codes 0..7: one start, then each code in turn is moved where
 * that improves the fit, five rounds at most. */
static float fit_by_descent(const float *x, uint8_t *codes)
{
    const int half = 4;
    const float max = extreme(x, 16);
    if (fabsf(max) < MIN_MAGNITUDE) {
        memset(codes, 0, 16);
        return 0;
    }
    int l[16];
    float sum_lx, sum_l2;
    symmetric_codes(x, -(float)half / max, half, l, &sum_lx, &sum_l2);
    bool changed = true;
    for (int round = 0; round < 5 && changed; round++) {
        changed = false;
        for (int i = 0; i < 16; i++) {
            const float w = x[i] * x[i];
            float lx = sum_lx - w * x[i] * (float)l[i];
            if (!(lx > 0)) continue;
            float l2 = sum_l2 - w * (float)l[i] * (float)l[i];
            const int moved = qrn_block_clamp(qrn_block_nearest(x[i] * l2 / lx), -half, half - 1);
            if (moved == l[i]) continue;
            lx += w * x[i] * (float)moved;
            l2 += w * (float)moved * (float)moved;
            if (l2 > 0 && lx * lx * sum_l2 > sum_lx * sum_lx * l2) {
                l[i] = moved;
                sum_lx = lx;
                sum_l2 = l2;
                changed = true;
            }
        }
    }
    for (int i = 0; i < 16; i++) codes[i] = (uint8_t)(l[i] + half);
    return sum_l2 > 0 ? sum_lx / sum_l2 : 0;
}

/* The greatest of n non-negative numbers; 0 if there is none above. */
static float greatest(const float *x, int n)
{
    float most = 0;
    for (int i = 0; i < n; i++)
        if (x[i] > most) most = x[i];
    return most;
}

/* codes[i] = (x[i] + min) / scale within 0..max_code. */
static void affine_codes(const float *x, int n, float scale, float min, int max_code,
                         uint8_t *codes)
{
    for (int i = 0; i < n; i++)
        codes[i] = (uint8_t)qrn_block_clamp(qrn_block_nearest((x[i] + min) / scale), 0, max_code);
}

/* codes[i] = x[i] / scale + half within 0..2 half - 1. */
static void symmetric_codes_at(const float *x, int n, float scale, int half, uint8_t *codes)
{
    for (int i = 0; i < n; i++)
        codes[i] =
            (uint8_t)(qrn_block_clamp(qrn_block_nearest(x[i] / scale), -half, half - 1) + half);
}

/* 256 codes of two bits: byte l of a half has those 32 apart. */
static void put_2_bits(uint8_t *q, const uint8_t *codes)
{
    for (int i = 0; i < 64; i++) {
        const uint8_t *c = codes + 128 * (i / 32) + i % 32;
        q[i] = (uint8_t)((c[0] & 3) | (c[32] & 3) << 2 | (c[64] & 3) << 4 | (c[96] & 3) << 6);
    }
}

/* 256 codes of four bits: low and high nibble are 32 apart. */
static void put_4_bits(uint8_t *q, const uint8_t *codes)
{
    for (int i = 0; i < 128; i++) {
        const uint8_t *c = codes + 64 * (i / 32) + i % 32;
        q[i] = (uint8_t)((c[0] & 15) | (c[32] & 15) << 4);
    }
}

static void encode_q2_k_block(const float *x, uint8_t *b)
{
    static const struct affine_search search = {3, -0.5f, 0.1f, 15, true};
    uint8_t codes[256];
    float scales[16], mins[16], weight[16];
    for (int s = 0; s < 16; s++) {
        for (int l = 0; l < 16; l++) weight[l] = fabsf(x[16 * s + l]);
        scales[s] = fit_affine(&search, x + 16 * s, weight, 16, codes + 16 * s, &mins[s]);
    }
    const float max_scale = greatest(scales, 16), max_min = greatest(mins, 16);
    const float inverse_scale = max_scale > 0 ? 15 / max_scale : 0;
    const float inverse_min = max_min > 0 ? 15 / max_min : 0;
    qrn_block_put_half(b + 80, max_scale / 15);
    qrn_block_put_half(b + 82, max_min / 15);
    const float d = qrn_block_half(b + 80), dmin = qrn_block_half(b + 82);
    for (int s = 0; s < 16; s++) {
        const unsigned scale = (unsigned)qrn_block_nearest(inverse_scale * scales[s]);
        const unsigned min = (unsigned)qrn_block_nearest(inverse_min * mins[s]);
        b[s] = (uint8_t)(scale | min << 4);
        const float rounded = d * (float)(b[s] & 15);
        if (rounded != 0)
            affine_codes(x + 16 * s, 16, rounded, dmin * (float)(b[s] >> 4), 3, codes + 16 * s);
    }
    put_2_bits(b + 16, codes);
}

void qrn_encode_q2_k(const float *restrict src, void *dst, size_t n)
{
    for (uint8_t *b = dst; n >= 256; n -= 256, src += 256, b += 84) encode_q2_k_block(src, b);
}

static void encode_q3_k_block(const float *x, uint8_t *b)
{
    uint8_t codes[256];
    float scales[16];
    for (int s = 0; s < 16; s++) scales[s] = fit_by_descent(x + 16 * s, codes + 16 * s);
    const float max_scale = extreme(scales, 16);
    memset(b, 0, 110);
    if (max_scale != 0) {
        const float inverse = -32 / max_scale;
        qrn_block_put_half(b + 108, 1 / inverse);
        const float d = qrn_block_half(b + 108);
        for (int s = 0; s < 16; s++) {
            const int scale = qrn_block_clamp(qrn_block_nearest(inverse * scales[s]), -32, 31);
            const unsigned biased = (unsigned)(scale + 32);
            b[96 + s % 8] |= (uint8_t)((biased & 15) << 4 * (s / 8));
            b[104 + s % 4] |= (uint8_t)(biased >> 4 << 2 * (s / 4));
            const float rounded = d * (float)scale;
            if (rounded != 0) symmetric_codes_at(x + 16 * s, 16, rounded, 4, codes + 16 * s);
        }
    }
    for (int j = 0; j < 256; j++) b[j % 32] |= (uint8_t)(codes[j] >> 2 << j / 32);
    put_2_bits(b + 32, codes);
}

void qrn_encode_q3_k(const float *restrict src, void *dst, size_t n)
{
    for (uint8_t *b = dst; n >= 256; n -= 256, src += 256, b += 110) encode_q3_k_block(src, b);
}

/* The common part of Q4_K and Q5_K: writes d, dmin and the 12 bytes of 6-bit scales and minima at
 * b, and 256 codes. */
static void encode_scaled_8x32(const struct affine_search *search, const float *x, uint8_t *b,
                               uint8_t *codes)
{
    float scales[8], mins[8], weight[32];
    for (int s = 0; s < 8; s++) {
        const float *xs = x + 32 * s;
        float sum = 0;
        for (int l = 0; l < 32; l++) sum += xs[l] * xs[l];
        const float average = sqrtf(sum / 32);
        for (int l = 0; l < 32; l++) weight[l] = average + fabsf(xs[l]);
        scales[s] = fit_affine(search, xs, weight, 32, codes + 32 * s, &mins[s]);
    }
    const float max_scale = greatest(scales, 8), max_min = greatest(mins, 8);
    const float inverse_scale = max_scale > 0 ? 63 / max_scale : 0;
    const float inverse_min = max_min > 0 ? 63 / max_min : 0;
    qrn_block_put_half(b, max_scale / 63);
    qrn_block_put_half(b + 2, max_min / 63);
    const float d = qrn_block_half(b), dmin = qrn_block_half(b + 2);
    uint8_t *q = b + 4;
    for (int s = 0; s < 8; s++) {
        /* through 8 bits: a scale just below zero becomes 63 */
        uint8_t scale = (uint8_t)qrn_block_nearest(inverse_scale * scales[s]);
        uint8_t min = (uint8_t)qrn_block_nearest(inverse_min * mins[s]);
        if (scale > 63) scale = 63;
        if (min > 63) min = 63;
        if (s < 4) {
            q[s] = scale;
            q[s + 4] = min;
        } else {
            q[s + 4] = (uint8_t)((scale & 15) | (min & 15) << 4);
            q[s - 4] |= (uint8_t)(scale >> 4 << 6);
            q[s] |= (uint8_t)(min >> 4 << 6);
        }
        const float rounded = d * (float)scale;
        if (rounded != 0)
            affine_codes(x + 32 * s, 32, rounded, dmin * (float)min, search->max_code,
                         codes + 32 * s);
    }
}

void qrn_encode_q4_k(const float *restrict src, void *dst, size_t n)
{
    static const struct affine_search search = {15, -1, 0.1f, 20, false};
    for (uint8_t *b = dst; n >= 256; n -= 256, src += 256, b += 144) {
        uint8_t codes[256];
        encode_scaled_8x32(&search, src, b, codes);
        put_4_bits(b + 16, codes);
    }
}

void qrn_encode_q5_k(const float *restrict src, void *dst, size_t n)
{
    static const struct affine_search search = {31, -0.5f, 0.1f, 15, false};
    for (uint8_t *b = dst; n >= 256; n -= 256, src += 256, b += 176) {
        uint8_t codes[256];
        encode_scaled_8x32(&search, src, b, codes);
        memset(b + 16, 0, 32);
        for (int j = 0; j < 256; j++) b[16 + j % 32] |= (uint8_t)(codes[j] >> 4 << j / 32);
        put_4_bits(b + 48, codes);
    }
}

static void encode_q6_k_block(const float *x, uint8_t *b)
{
    uint8_t codes[256];
    float scales[16];
    for (int s = 0; s < 16; s++) scales[s] = fit_symmetric(x + 16 * s, codes + 16 * s);
    const float max_scale = extreme(scales, 16);
    memset(b, 0, 210);
    if (fabsf(max_scale) < MIN_MAGNITUDE) return;
    const float inverse = -128 / max_scale;
    qrn_block_put_half(b + 208, 1 / inverse);
    const float d = qrn_block_half(b + 208);
    for (int s = 0; s < 16; s++) {
        const int scale = qrn_block_clamp(qrn_block_nearest(inverse * scales[s]), -128, 127);
        b[192 + s] = (uint8_t)scale;
        const float rounded = d * (float)scale;
        if (rounded != 0) symmetric_codes_at(x + 16 * s, 16, rounded, 32, codes + 16 * s);
    }
    for (int i = 0; i < 64; i++) {
        const uint8_t *c = codes + 128 * (i / 32) + i % 32;
        uint8_t *low = b + 64 * (i / 32) + i % 32;
        low[0] = (uint8_t)((c[0] & 15) | (c[64] & 15) << 4);
        low[32] = (uint8_t)((c[32] & 15) | (c[96] & 15) << 4);
        b[128 + i] = (uint8_t)(c[0] >> 4 | c[32] >> 4 << 2 | c[64] >> 4 << 4 | c[96] >> 4 << 6);
    }
}

void qrn_encode_q6_k(const float *restrict src, void *dst, size_t n)
{
    for (uint8_t *b = dst; n >= 256; n -= 256, src += 256, b += 210) encode_q6_k_block(src, b);
}

void qrn_encode_q8_k(const float *restrict src, void *dst, size_t n)
{
    for (uint8_t *b = dst; n >= 256; n -= 256, src += 256, b += 292) {
        const float max = extreme(src, 256);
        const float inverse = max != 0 ? -127 / max : 0, d = max != 0 ? 1 / inverse : 0;
        qrn_block_put_u32(b, qrn_float_bits(d));
        for (int s = 0; s < 16; s++) {
            int sum = 0;
            for (int l = 0; l < 16; l++) {
                const int q = qrn_block_nearest(inverse * src[16 * s + l]);
                const int code = qrn_block_clamp(q, -128, 127);
                b[4 + 16 * s + l] = (uint8_t)code;
                sum += code;
            }
            qrn_block_put_u16(b + 260 + 2 * s, (uint16_t)sum);
        }
    }
}
