/* SPDX-License-Identifier: MIT
 * Block types to floats and back, on the CPU, one row (or any whole number of blocks) at a time.
 * Layouts and formulas: docs/block_formats.md.
 *
 * All of this is plain C without state: any thread, any alignment.  n is always a whole number of
 * blocks; what is left over is not touched.  Source and destination do not overlap. */
#ifndef QUERN_FORMATS_BLOCKS_H
#define QUERN_FORMATS_BLOCKS_H

#include <stdbool.h>
#include <quern/dtype.h>

/* Decodes n values exactly as the format defines them, in float32: F32 F16 BF16 F64 F8_* and every
 * GGUF block type.  Any bytes decode: a scale that is NaN or infinite gives values that are. */
typedef void (*qrn_decode_fn)(const void *src, float *dst, size_t n);
/* NULL for types that have no values of their own (integers, MLX codes, addresses). */
qrn_decode_fn qrn_decoder(enum qrn_dtype dtype);

/* Decodes MLX affine codes: dst[i] = scales[i / group] * code[i] + biases[i / group], computed in
 * float32 as one product and one sum.  dtype is QRN_MLX_Q2..Q8, group at least 1.  Codes run on
 * through row ends: with rows of K values, call it for one row or for any number of them. */
void qrn_decode_mlx(enum qrn_dtype dtype, const void *codes, const float *scales,
                    const float *biases, int64_t group, float *dst, size_t n);

/* Encodes n values into blocks, byte for byte as llama-quantize without an importance matrix.
 * NaN, infinities and huge values are encoded without harm, as some value. */
typedef void (*qrn_encode_fn)(const float *src, void *dst, size_t n);
/* NULL for types that cannot be written. */
qrn_encode_fn qrn_encoder(enum qrn_dtype dtype);

/* Bytes of n values, or false: not a whole number of blocks, negative, or too many. */
bool qrn_row_bytes(enum qrn_dtype dtype, int64_t n, size_t *out);

/* Codes whose scales and biases are tensors of their own. */
static inline bool qrn_is_mlx(enum qrn_dtype t)
{
    return t >= QRN_MLX_Q2 && t <= QRN_MLX_Q8;
}

#endif
