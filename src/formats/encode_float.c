/* SPDX-License-Identifier: MIT
 * Encoders of plain floating-point types: round to nearest even. */
#include "formats/block_codecs.h"

void qrn_encode_f32(const float *restrict src, void *dst, size_t n)
{
    if (n) memcpy(dst, src, n * sizeof *src);
}

void qrn_encode_f16(const float *restrict src, void *dst, size_t n)
{
    uint8_t *p = dst;
    for (size_t i = 0; i < n; i++) qrn_block_put_half(p + 2 * i, src[i]);
}

void qrn_encode_bf16(const float *restrict src, void *dst, size_t n)
{
    uint8_t *p = dst;
    for (size_t i = 0; i < n; i++) qrn_block_put_u16(p + 2 * i, qrn_float_to_bf16(src[i]));
}
