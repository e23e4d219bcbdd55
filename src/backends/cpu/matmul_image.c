/* SPDX-License-Identifier: MIT
 * Rows of weights to groups of 16 interleaved rows, in portable C. */
#include "backends/cpu/matmul_image.h"

#include <string.h>

/* Codes of row r in planes; c[q] holds the codes of k = 4 q .. 4 q + 3. */
static void put_codes(int bits, const uint8_t *codes, int r, uint8_t *out)
{
    uint32_t c[8];
    memcpy(c, codes, sizeof c);
    out += 4 * r;
    if (bits == 8) {
        for (int q = 0; q < 8; q++) memcpy(out + 64 * q, &c[q], 4);
        return;
    }
    int done = 0; /* bits of each code that are written */
    if (bits >= 4) {
        for (int p = 0; p < 4; p++, out += 64) {
            const uint32_t word = (c[p] & 0x0f0f0f0fu) | (c[p + 4] & 0x0f0f0f0fu) << 4;
            memcpy(out, &word, 4);
        }
        done = 4;
    }
    if (bits - done >= 2) {
        for (int p = 0; p < 2; p++, out += 64) {
            uint32_t word = 0;
            for (int i = 0; i < 4; i++) word |= (c[2 * i + p] >> done & 0x03030303u) << 2 * i;
            memcpy(out, &word, 4);
        }
        done += 2;
    }
    if (bits - done == 1) {
        uint32_t word = 0;
        for (int q = 0; q < 8; q++) word |= (c[q] >> done & 0x01010101u) << q;
        memcpy(out, &word, 4);
    }
}

static void put_head(const struct matmul_form *f, const struct matmul_block *b, int r, uint8_t *out)
{
    const uint16_t d = (uint16_t)b->d, m = (uint16_t)b->m;
    switch (f->head) {
    case HEAD_F16_F16:
        memcpy(out + 32 + 2 * r, &m, 2); /* fall through */
    case HEAD_F16:
        memcpy(out + 2 * r, &d, 2);
        break;
    case HEAD_E8M0:
        out[r] = (uint8_t)b->d;
        break;
    case HEAD_F32_F32:
        memcpy(out + 4 * r, &b->d, 4);
        memcpy(out + 64 + 4 * r, &b->m, 4);
    }
}

static uint8_t *put_sub(const struct matmul_form *f, const struct matmul_block *b, int r,
                        uint8_t *out)
{
    if (f->sub == SUB_NONE) return out;
    const bool halves_min = f->sub == SUB_HALVES_MIN;
    out[r] = (uint8_t)(halves_min ? b->s[0] | b->t[0] << 4 : b->s[0]);
    if (f->sub == SUB_SCALE) return out + 16;
    out[16 + r] = (uint8_t)(halves_min             ? b->s[1] | b->t[1] << 4
                            : f->sub == SUB_HALVES ? b->s[1]
                                                   : b->t[0]);
    return out + 32;
}

static void write_codes(const struct matmul_form *f, const struct qrn_weight_row *rows, int n_rows,
                        int64_t k0, int64_t k, uint8_t *out)
{
    const int64_t blocks = image_blocks(f, rows->group);
    const size_t head = image_head_bytes(f), block = image_block_bytes(f);
    const size_t step = head + (size_t)blocks * block;
    for (int r = 0; r < n_rows; r++)
        for (int64_t i = 0; i < k / 32; i++) {
            struct matmul_block b;
            qrn_matmul_take(&rows[r], k0 / 32 + i, &b);
            uint8_t *at = out + (size_t)(i / blocks) * step;
            if (i % blocks == 0) put_head(f, &b, r, at);
            at = put_sub(f, &b, r, at + head + (size_t)(i % blocks) * block);
            put_codes(f->bits, b.codes, r, at);
        }
}

static void write_plain(const struct qrn_weight_row *rows, int n_rows, int64_t k0, int64_t k,
                        size_t element, char *out)
{
    for (int r = 0; r < n_rows; r++) {
        const char *in = rows[r].blocks + (size_t)k0 * element;
        char *at = out + (size_t)r * element;
        if (element == 2)
            for (int64_t i = 0; i < k; i++) memcpy(at + 32 * i, in + 2 * i, 2);
        else
            for (int64_t i = 0; i < k; i++) memcpy(at + 64 * i, in + 4 * i, 4);
    }
}

/* 64 pairs at a time of all rows, so that what is written stays near. */
static void write_pairs(const struct qrn_weight_row *rows, int n_rows, int64_t k0, int64_t k,
                        char *out)
{
    const int64_t n_pairs = k / 2;
    if (k % 32) memset(out + k / 32 * IMAGE_PAIR_BLOCK, 0, IMAGE_PAIR_BLOCK);
    for (int64_t p0 = 0; p0 < n_pairs; p0 += 64) {
        const int64_t n = n_pairs - p0 < 64 ? n_pairs - p0 : 64;
        for (int r = 0; r < n_rows; r++) {
            const char *in = rows[r].blocks + 2 * k0 + 4 * p0;
            char *at = out + 64 * p0 + 4 * r;
            for (int64_t p = 0; p < n; p++) memcpy(at + 64 * p, in + 4 * p, 4);
        }
    }
    if (k % 2)
        for (int r = 0; r < n_rows; r++)
            memcpy(out + 64 * n_pairs + 4 * r, rows[r].blocks + 2 * (k0 + k - 1), 2);
}

void qrn_image_write(const struct qrn_weight_row *rows, int n_rows, int64_t k0, int64_t k,
                     void *out)
{
    const enum qrn_dtype t = rows->dtype;
    if (n_rows < IMAGE_ROWS) memset(out, 0, image_group_bytes(t, k, rows->group));
    if (t == QRN_BF16)
        write_pairs(rows, n_rows, k0, k, out);
    else if (image_is_plain(t))
        write_plain(rows, n_rows, k0, k, t == QRN_F32 ? 4 : 2, out);
    else
        write_codes(qrn_matmul_form(t), rows, n_rows, k0, k, out);
}

void qrn_image_write_f32(const struct qrn_weight_row *rows, int n_rows, int64_t k0, int64_t k,
                         float *out)
{
    if (n_rows < IMAGE_ROWS) memset(out, 0, (size_t)k * IMAGE_ROWS * sizeof *out);
    for (int r = 0; r < n_rows; r++)
        for (int64_t i = 0; i < k; i += 256) {
            float values[256];
            const int64_t n = k - i < 256 ? k - i : 256;
            qrn_weight_decode(&rows[r], k0 + i, n, values);
            for (int64_t j = 0; j < n; j++) out[(i + j) * IMAGE_ROWS + r] = values[j];
        }
}
