/* SPDX-License-Identifier: MIT
 * Blocks of 32 codes and their scales out of each type's rows.  Layouts: docs/block_formats.md. */
#include "backends/cpu/matmul_forms.h"

#include "formats/block_codecs.h"

static const struct matmul_form forms[QRN_DTYPE_COUNT] = {
#define X(NAME, bits, blocks, head, sub, offset, levels) \
    [QRN_##NAME] = {bits, blocks, head, sub, offset, levels},
    MATMUL_FORMS(X)
#undef X
};

const struct matmul_form *qrn_matmul_form(enum qrn_dtype t)
{
    return forms[t].bits ? &forms[t] : NULL;
}

static void nibbles(const uint8_t *q, uint8_t *codes)
{
    for (int j = 0; j < 16; j++) {
        codes[j] = q[j] & 15;
        codes[j + 16] = q[j] >> 4;
    }
}

static void add_fifth_bits(uint32_t high, uint8_t *codes)
{
    for (int j = 0; j < 32; j++) codes[j] |= (uint8_t)((high >> j & 1) << 4);
}

static void take_q8_0(const uint8_t *b, struct matmul_block *out)
{
    out->d = qrn_block_u16(b);
    for (int j = 0; j < 32; j++) out->codes[j] = b[2 + j] ^ 128u;
}

/* Q4_0, Q4_1, Q5_0, Q5_1, IQ4_NL: d, perhaps m, perhaps fifth bits, nibbles. */
static void take_half_bytes(const uint8_t *b, bool min, bool fifth, struct matmul_block *out)
{
    out->d = qrn_block_u16(b);
    b += 2;
    if (min) {
        out->m = qrn_block_u16(b);
        b += 2;
    }
    nibbles(b + (fifth ? 4 : 0), out->codes);
    if (fifth) add_fifth_bits(qrn_block_u32(b), out->codes);
}

static void take_q2_k(const uint8_t *b, int i, struct matmul_block *out)
{
    out->d = qrn_block_u16(b + 80);
    out->m = qrn_block_u16(b + 82);
    const uint8_t *q = b + 16 + 32 * (i / 4);
    for (int h = 0; h < 2; h++) {
        out->s[h] = b[2 * i + h] & 15;
        out->t[h] = b[2 * i + h] >> 4;
    }
    for (int j = 0; j < 32; j++) out->codes[j] = q[j] >> 2 * (i % 4) & 3;
}

static void take_q3_k(const uint8_t *b, int i, struct matmul_block *out)
{
    const uint8_t *packed = b + 96, *q = b + 32 + 32 * (i / 4);
    out->d = qrn_block_u16(b + 108);
    for (int h = 0; h < 2; h++) {
        const int s = 2 * i + h, low = s < 8 ? packed[s] & 15 : packed[s - 8] >> 4;
        const int high = packed[8 + s % 4] >> 2 * (s / 4) & 3;
        out->s[h] = (uint8_t)((low | high << 4) - 32);
    }
    for (int j = 0; j < 32; j++)
        out->codes[j] = (uint8_t)((q[j] >> 2 * (i % 4) & 3) | (b[j] >> i & 1) << 2);
}

/* Q4_K and Q5_K. */
static void take_scale_min(const uint8_t *b, int i, bool fifth, struct matmul_block *out)
{
    out->d = qrn_block_u16(b);
    out->m = qrn_block_u16(b + 2);
    out->s[0] = (uint8_t)qrn_block_k_scale(b + 4, i);
    out->t[0] = (uint8_t)qrn_block_k_min(b + 4, i);
    const uint8_t *q = b + (fifth ? 48 : 16) + 32 * (i / 2), *high = b + 16;
    for (int j = 0; j < 32; j++) {
        out->codes[j] = q[j] >> 4 * (i % 2) & 15;
        if (fifth) out->codes[j] |= (uint8_t)((high[j] >> i & 1) << 4);
    }
}

static void take_q6_k(const uint8_t *b, int i, struct matmul_block *out)
{
    const int half = i / 4, run = i % 4;
    const uint8_t *low = b + 64 * half + 32 * (run % 2), *high = b + 128 + 32 * half;
    out->d = qrn_block_u16(b + 208);
    out->s[0] = b[192 + 2 * i];
    out->s[1] = b[193 + 2 * i];
    for (int j = 0; j < 32; j++)
        out->codes[j] = (uint8_t)((low[j] >> 4 * (run / 2) & 15) | (high[j] >> 2 * run & 3) << 4);
}

static void take_iq4_xs(const uint8_t *b, int i, struct matmul_block *out)
{
    const int low = b[4 + i / 2] >> 4 * (i % 2) & 15, high = qrn_block_u16(b + 2) >> 2 * i & 3;
    out->d = qrn_block_u16(b);
    out->s[0] = (uint8_t)((low | high << 4) - 32);
    nibbles(b + 8 + 16 * i, out->codes);
}

/* Digit n of a byte that holds up to five base-3 digits as a fraction of 256, rounded up. */
static uint8_t ternary_digit(uint8_t byte, int n)
{
    static const uint8_t power[5] = {1, 3, 9, 27, 81};
    return (uint8_t)((uint8_t)(byte * power[n]) * 3 >> 8);
}

static void take_tq1_0(const uint8_t *b, int i, struct matmul_block *out)
{
    out->d = qrn_block_u16(b + 52);
    for (int j = 0; j < 32; j++) {
        const int k = 32 * i + j; /* 5 x 32 digits of 32 bytes, 5 x 16 of 16, 4 x 4 of 4 */
        if (k < 160)
            out->codes[j] = ternary_digit(b[k % 32], k / 32);
        else if (k < 240)
            out->codes[j] = ternary_digit(b[32 + (k - 160) % 16], (k - 160) / 16);
        else
            out->codes[j] = ternary_digit(b[48 + (k - 240) % 4], (k - 240) / 4);
    }
}

static void take_tq2_0(const uint8_t *b, int i, struct matmul_block *out)
{
    out->d = qrn_block_u16(b + 64);
    for (int j = 0; j < 32; j++) out->codes[j] = b[32 * (i / 4) + j] >> 2 * (i % 4) & 3;
}

static void take_mlx(const struct qrn_weight_row *row, const uint8_t *b, int64_t i,
                     struct matmul_block *out)
{
    const int bits = forms[row->dtype].bits;
    const int64_t group = 32 * i / row->group;
    out->d = qrn_float_bits(qrn_plain_value(row->scales_type, row->scales, group));
    out->m = qrn_float_bits(qrn_plain_value(row->biases_type, row->biases, group));
    for (int j = 0; j < 32; j += 8, b += bits) {
        uint64_t eight = 0;
        for (int n = 0; n < bits; n++) eight |= (uint64_t)b[n] << 8 * n;
        for (int n = 0; n < 8; n++, eight >>= bits)
            out->codes[j + n] = (uint8_t)(eight & ((1u << bits) - 1));
    }
}

void qrn_matmul_take(const struct qrn_weight_row *row, int64_t i, struct matmul_block *out)
{
    const struct qrn_dtype_info *info = qrn_dtype_info(row->dtype);
    const int per_block = info->block_elements / 32, sub = (int)(i % per_block);
    const uint8_t *b =
        (const uint8_t *)row->blocks + (size_t)(i / per_block) * (size_t)info->block_bytes;
    switch ((int)row->dtype) {
    case QRN_Q4_0:
    case QRN_IQ4_NL:
        take_half_bytes(b, false, false, out);
        break;
    case QRN_Q4_1:
        take_half_bytes(b, true, false, out);
        break;
    case QRN_Q5_0:
        take_half_bytes(b, false, true, out);
        break;
    case QRN_Q5_1:
        take_half_bytes(b, true, true, out);
        break;
    case QRN_Q8_0:
        take_q8_0(b, out);
        break;
    case QRN_Q2_K:
        take_q2_k(b, sub, out);
        break;
    case QRN_Q3_K:
        take_q3_k(b, sub, out);
        break;
    case QRN_Q4_K:
        take_scale_min(b, sub, false, out);
        break;
    case QRN_Q5_K:
        take_scale_min(b, sub, true, out);
        break;
    case QRN_Q6_K:
        take_q6_k(b, sub, out);
        break;
    case QRN_IQ4_XS:
        take_iq4_xs(b, sub, out);
        break;
    case QRN_MXFP4:
        out->d = b[0];
        nibbles(b + 1, out->codes);
        break;
    case QRN_TQ1_0:
        take_tq1_0(b, sub, out);
        break;
    case QRN_TQ2_0:
        take_tq2_0(b, sub, out);
        break;
    default:
        take_mlx(row, b, i, out);
    }
}
