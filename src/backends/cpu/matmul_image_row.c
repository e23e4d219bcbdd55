/* SPDX-License-Identifier: MIT
 * One row out of a packed matrix. */
#include "backends/cpu/matmul_image_row.h"

#include <string.h>

/* The inverse of how codes lie in planes: byte j of c[q] becomes the code of k = 4 q + j. */
static void get_codes(int bits, const uint8_t *in, int r, uint32_t c[8])
{
    uint32_t planes[8];
    for (int i = 0; i < bits; i++) memcpy(&planes[i], in + 64 * i + 4 * r, 4);
    if (bits == 8) {
        memcpy(c, planes, sizeof planes);
        return;
    }
    const uint32_t *p = planes;
    int done = 0;
    memset(c, 0, 8 * sizeof *c);
    if (bits >= 4) {
        for (int q = 0; q < 8; q++) c[q] = p[q % 4] >> 4 * (q / 4) & 0x0f0f0f0fu;
        p += 4;
        done = 4;
    }
    if (bits - done >= 2) {
        for (int q = 0; q < 8; q++) c[q] |= (p[q % 2] >> 2 * (q / 2) & 0x03030303u) << done;
        p += 2;
        done += 2;
    }
    if (bits - done == 1)
        for (int q = 0; q < 8; q++) c[q] |= (*p >> q & 0x01010101u) << done;
}

struct head {
    float d, m;
};

static struct head get_head(const struct matmul_form *f, const uint8_t *in, int r)
{
    uint16_t halves[2] = {0, 0};
    uint32_t wholes[2];
    switch (f->head) {
    case HEAD_F32_F32:
        memcpy(&wholes[0], in + 4 * r, 4);
        memcpy(&wholes[1], in + 64 + 4 * r, 4);
        return (struct head){qrn_bits_float(wholes[0]), qrn_bits_float(wholes[1])};
    case HEAD_E8M0:
        return (struct head){matmul_head_value(HEAD_E8M0, in[r]), 0.0f};
    case HEAD_F16_F16:
        memcpy(&halves[1], in + 32 + 2 * r, 2); /* fall through */
    case HEAD_F16:
        memcpy(&halves[0], in + 2 * r, 2);
    }
    return (struct head){qrn_f16_to_float(halves[0]), qrn_f16_to_float(halves[1])};
}

/* Scale and what is added, of each half of 32 weights; a scale meets its small integer first, as in
 * the decoders. */
static void get_scales(const struct matmul_form *f, struct head h, const uint8_t *in, int r,
                       float scale[2], float add[2])
{
    for (int i = 0; i < 2; i++) {
        const uint8_t s = in[r + (matmul_has_halves(f) ? 16 * i : 0)];
        scale[i] = h.d;
        add[i] = h.m;
        switch (f->sub) {
        case SUB_NONE:
            break;
        case SUB_SCALE:
        case SUB_HALVES:
            scale[i] = h.d * (float)(int8_t)s;
            break;
        case SUB_SCALE_MIN:
            scale[i] = h.d * (float)s;
            add[i] = -(h.m * (float)in[16 + r]);
            break;
        case SUB_HALVES_MIN:
            scale[i] = h.d * (float)(s & 15);
            add[i] = -(h.m * (float)(s >> 4));
        }
    }
}

static void read_codes(const struct matmul_form *f, const uint8_t *group, int r, int64_t k,
                       int64_t blocks, float *out)
{
    const size_t head = image_head_bytes(f), block = image_block_bytes(f);
    const size_t sub = block - 64 * (size_t)f->bits;
    const bool min = matmul_has_min(f);
    float levels[256];
    for (int c = 0; c < 1 << f->bits; c++) levels[c] = (float)matmul_level(f, (uint8_t)c);
    for (int64_t i = 0; i < k / 32; i += blocks) {
        const struct head h = get_head(f, group, r);
        group += head;
        for (int64_t b = 0; b < blocks; b++, group += block, out += 32) {
            uint32_t words[8];
            uint8_t codes[32];
            float scale[2], add[2];
            get_scales(f, h, group, r, scale, add);
            get_codes(f->bits, group + sub, r, words);
            memcpy(codes, words, sizeof codes);
            for (int j = 0; j < 32; j++) {
                const float product = scale[j / 16] * levels[codes[j]];
                out[j] = min ? product + add[j / 16] : product;
            }
        }
    }
}

static void read_plain(enum qrn_dtype t, const uint8_t *group, int r, int64_t k, float *out)
{
    for (int64_t i = 0; i < k; i++) {
        uint16_t half;
        if (t == QRN_F32) {
            memcpy(&out[i], group + 64 * i + 4 * r, 4);
        } else if (t == QRN_F16) {
            memcpy(&half, group + 32 * i + 2 * r, 2);
            out[i] = qrn_f16_to_float(half);
        } else {
            memcpy(&half, group + 64 * (i / 2) + 4 * r + 2 * (i % 2), 2);
            out[i] = qrn_bf16_to_float(half);
        }
    }
}

void qrn_image_read_row(const struct qrn_tensor *w, int64_t mlx_group, int64_t n, float *out)
{
    const int64_t k = w->shape[w->n_dims - 1];
    const int r = (int)(n % IMAGE_ROWS);
    const size_t bytes = image_group_bytes(w->dtype, k, mlx_group);
    const uint8_t *group = (const uint8_t *)w->data + (size_t)(n / IMAGE_ROWS) * bytes;
    if (image_is_plain(w->dtype)) {
        read_plain(w->dtype, group, r, k, out);
        return;
    }
    const struct matmul_form *f = qrn_matmul_form(w->dtype);
    read_codes(f, group, r, k, image_blocks(f, mlx_group), out);
}
