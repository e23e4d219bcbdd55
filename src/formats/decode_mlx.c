/* SPDX-License-Identifier: MIT
 * MLX affine codes: a stream of bits-wide numbers, lowest bits first, eight in bits bytes. */
#include "formats/blocks.h"

static unsigned code_bits(enum qrn_dtype dtype)
{
    return (unsigned)qrn_dtype_info(dtype)->block_bytes / 4;
}

void qrn_decode_mlx(enum qrn_dtype dtype, const void *codes, const float *scales,
                    const float *biases, int64_t group, float *dst, size_t n)
{
    const unsigned bits = code_bits(dtype), mask = (1u << bits) - 1;
    const uint8_t *p = codes;
    int64_t left = group; /* values until the next scale */
    for (; n >= 8; n -= 8, p += bits) {
        uint64_t eight = 0;
        for (unsigned i = 0; i < bits; i++) eight |= (uint64_t)p[i] << 8 * i;
        for (int i = 0; i < 8; i++, eight >>= bits) {
            if (left == 0) scales++, biases++, left = group;
            const float product = *scales * (float)(unsigned)(eight & mask);
            *dst++ = product + *biases;
            left--;
        }
    }
}
