/* SPDX-License-Identifier: MIT
 * Which types decode and encode, and how long rows are. */
#include "formats/block_codecs.h"

static const qrn_decode_fn decoders[QRN_DTYPE_COUNT] = {
#define X(NAME, name) [QRN_##NAME] = qrn_decode_##name,
    QRN_DECODE_LIST(X)
#undef X
};

qrn_decode_fn qrn_decoder(enum qrn_dtype dtype)
{
    return (unsigned)dtype < QRN_DTYPE_COUNT ? decoders[dtype] : NULL;
}

static const qrn_encode_fn encoders[QRN_DTYPE_COUNT] = {
#define X(NAME, name) [QRN_##NAME] = qrn_encode_##name,
    QRN_ENCODE_LIST(X)
#undef X
};

qrn_encode_fn qrn_encoder(enum qrn_dtype dtype)
{
    return (unsigned)dtype < QRN_DTYPE_COUNT ? encoders[dtype] : NULL;
}

bool qrn_row_bytes(enum qrn_dtype dtype, int64_t n, size_t *out)
{
    const struct qrn_dtype_info *info = qrn_dtype_info(dtype);
    if (!info || n < 0 || n % info->block_elements != 0) return false;
    const uint64_t n_blocks = (uint64_t)(n / info->block_elements);
    const size_t block_bytes = (size_t)info->block_bytes;
    if (n_blocks > PTRDIFF_MAX / block_bytes) return false;
    *out = (size_t)n_blocks * block_bytes;
    return true;
}
