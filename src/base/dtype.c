/* SPDX-License-Identifier: MIT
 * The table of element types. */
#include <quern/dtype.h>

#include <strings.h>

static const struct qrn_dtype_info infos[] = {
#define X(name, text, gguf_id, block_elements, block_bytes) \
    {text, gguf_id, block_elements, block_bytes},
    QRN_DTYPE_LIST(X)
#undef X
};

const struct qrn_dtype_info *qrn_dtype_info(enum qrn_dtype dtype)
{
    return (unsigned)dtype < QRN_DTYPE_COUNT ? &infos[dtype] : NULL;
}

enum qrn_dtype qrn_dtype_from_gguf(uint32_t gguf_id)
{
    for (unsigned i = 0; i < QRN_DTYPE_COUNT; i++)
        if (infos[i].gguf_id >= 0 && (uint32_t)infos[i].gguf_id == gguf_id) return (enum qrn_dtype)i;
    return QRN_DTYPE_COUNT;
}

enum qrn_dtype qrn_dtype_from_name(const char *name)
{
    for (unsigned i = 0; i < QRN_DTYPE_COUNT; i++)
        if (strcasecmp(infos[i].name, name) == 0) return (enum qrn_dtype)i;
    return QRN_DTYPE_COUNT;
}
