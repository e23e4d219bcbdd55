/* SPDX-License-Identifier: MIT
 * Bytes that grow: headers being written. */
#include "formats/bytes.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "base/memory.h"

static bool reserve(struct qrn_bytes *b, size_t n_more)
{
    size_t wanted;
    if (!qrn_add_size(b->n_bytes, n_more, &wanted)) return false;
    if (wanted <= b->n_reserved) return true;
    size_t n = b->n_reserved ? b->n_reserved : 1024;
    while (n < wanted)
        if (!qrn_mul_size(n, 2, &n)) return false;
    uint8_t *bytes = qrn_realloc(&b->allocator, b->bytes, b->n_reserved, n);
    if (!bytes) return false;
    b->bytes = bytes;
    b->n_reserved = n;
    return true;
}

void qrn_bytes_append(struct qrn_bytes *b, const void *bytes, size_t n_bytes)
{
    if (b->failed || n_bytes == 0) return;
    if (!reserve(b, n_bytes)) {
        b->failed = true;
        return;
    }
    memcpy(b->bytes + b->n_bytes, bytes, n_bytes);
    b->n_bytes += n_bytes;
}

void qrn_bytes_text(struct qrn_bytes *b, const char *text)
{
    qrn_bytes_append(b, text, strlen(text));
}

void qrn_bytes_uint(struct qrn_bytes *b, uint64_t value, size_t n)
{
    uint8_t bytes[8];
    for (size_t i = 0; i < 8; i++) bytes[i] = (uint8_t)(value >> (8 * i));
    qrn_bytes_append(b, bytes, n);
}

void qrn_bytes_decimal(struct qrn_bytes *b, uint64_t value)
{
    char text[24];
    (void)snprintf(text, sizeof text, "%" PRIu64, value);
    qrn_bytes_text(b, text);
}

void qrn_bytes_free(struct qrn_bytes *b)
{
    qrn_free(&b->allocator, b->bytes, b->n_reserved);
    *b = (struct qrn_bytes){.allocator = b->allocator};
}
