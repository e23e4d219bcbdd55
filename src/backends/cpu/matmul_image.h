/* SPDX-License-Identifier: MIT
 * Packed weights as vector kernels read them: 16 rows interleaved, so that outputs sit in lanes.
 *
 * A matrix is groups of 16 rows, one after the other; rows past N are zeros.  In a group k ascends.
 * f32, f16: for each k 16 elements, a row each.  bf16: for each two k 16 times the two elements of a
 * row, zeros up to whole blocks of 32 k (an AMX tile).  Types with an integer form: for each head
 * (see matmul_forms.h), 16 times d, 16 times m if any; then for each of its blocks of 32 k the
 * small integers, 16 of each, and the codes in planes of 4, 2 and 1 bits (8 bits: one plane).
 *
 * Codes are seen as eight vectors v[q] of 64 bytes: byte 4 * row + j is the code of k = 4 q + j.
 *     8 bits   v[0] .. v[7]
 *     4 bits   vector p = 0 .. 3: low nibbles v[p], high ones v[p + 4]
 *     2 bits   vector p = 0, 1:   bits 2 i, 2 i + 1 are v[2 i + p]
 *     1 bit    one vector:        bit q is v[q]
 * Codes of 3, 5 and 6 bits are a plane of 2, 4, 4 low bits, then one of 1, 1, 2 high ones. */
#ifndef QUERN_BACKENDS_CPU_MATMUL_IMAGE_H
#define QUERN_BACKENDS_CPU_MATMUL_IMAGE_H

#include "backends/cpu/matmul_forms.h"

enum {
    IMAGE_ROWS = 16,
    IMAGE_PAIR_BLOCK = 1024 /* bytes of 32 k of bf16 */
};

static inline size_t image_head_bytes(const struct matmul_form *f)
{
    static const size_t bytes[] = {
        [HEAD_F16] = 32, [HEAD_F16_F16] = 64, [HEAD_E8M0] = 16, [HEAD_F32_F32] = 128};
    return bytes[f->head];
}

/* The small integers and the codes of 32 k. */
static inline size_t image_block_bytes(const struct matmul_form *f)
{
    static const size_t bytes[] = {[SUB_NONE] = 0,
                                   [SUB_SCALE] = 16,
                                   [SUB_SCALE_MIN] = 32,
                                   [SUB_HALVES] = 32,
                                   [SUB_HALVES_MIN] = 32};
    return bytes[f->sub] + 64 * (size_t)f->bits;
}

/* Blocks of 32 k under one head. */
static inline int64_t image_blocks(const struct matmul_form *f, int64_t mlx_group)
{
    return f->blocks ? f->blocks : mlx_group / 32;
}

static inline bool image_is_plain(enum qrn_dtype t)
{
    return t == QRN_F32 || t == QRN_F16 || t == QRN_BF16;
}

static inline bool image_exists(enum qrn_dtype t)
{
    return image_is_plain(t) || qrn_has_integer_form(t);
}

/* One group of k columns, in whole heads (bf16: blocks of 32 but for the last); mlx_group for MLX
 * codes only. */
static inline size_t image_group_bytes(enum qrn_dtype t, int64_t k, int64_t mlx_group)
{
    if (t == QRN_BF16) return (size_t)((k + 31) / 32) * IMAGE_PAIR_BLOCK;
    if (image_is_plain(t)) return (size_t)k * IMAGE_ROWS * (t == QRN_F32 ? 4 : 2);
    const struct matmul_form *f = qrn_matmul_form(t);
    const int64_t blocks = image_blocks(f, mlx_group);
    return (size_t)(k / 32 / blocks) *
           (image_head_bytes(f) + (size_t)blocks * image_block_bytes(f));
}

/* A whole image. */
static inline size_t image_bytes(enum qrn_dtype t, int64_t n_matrices, int64_t n, int64_t k,
                                 int64_t mlx_group)
{
    return (size_t)(n_matrices * ((n + IMAGE_ROWS - 1) / IMAGE_ROWS)) *
           image_group_bytes(t, k, mlx_group);
}

/* The group of MLX codes (32 for other types) of an image whose size is w.n_bytes; 0 when that is
 * not the size of an image of this shape. */
static inline int64_t image_mlx_group(const struct qrn_tensor *w)
{
    const int d = w->n_dims;
    const int64_t n_matrices = d > 2 ? w->shape[0] : 1, n = w->shape[d - 2], k = w->shape[d - 1];
    for (int64_t group = 32; group <= (qrn_is_mlx(w->dtype) ? 128 : 32); group *= 2)
        if (k % group == 0 || !qrn_is_mlx(w->dtype))
            if (image_bytes(w->dtype, n_matrices, n, k, group) == w->n_bytes) return group;
    return 0;
}

/* Columns k0 .. k0 + k - 1 of 16 rows (those from n_rows on: zeros) to one group. */
void qrn_image_write(const struct qrn_weight_row *rows, int n_rows, int64_t k0, int64_t k,
                     void *out);

/* The same as floats, whatever the type: for each k 16 elements. */
void qrn_image_write_f32(const struct qrn_weight_row *rows, int n_rows, int64_t k0, int64_t k,
                         float *out);

#endif
