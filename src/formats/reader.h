/* SPDX-License-Identifier: MIT
 * A cursor over untrusted little-endian bytes.  Failure sticks: read a group, look at failed once.
 */
#ifndef QUERN_FORMATS_READER_H
#define QUERN_FORMATS_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct qrn_reader {
    const uint8_t *at, *end;
    bool failed;
};

static inline size_t qrn_reader_left(const struct qrn_reader *r)
{
    return (size_t)(r->end - r->at);
}

/* The next n bytes, or NULL. */
static inline const uint8_t *qrn_reader_take(struct qrn_reader *r, uint64_t n)
{
    if (r->failed || n > qrn_reader_left(r)) {
        r->failed = true;
        return NULL;
    }
    const uint8_t *bytes = r->at;
    r->at += (size_t)n;
    return bytes;
}

/* An unsigned number of n <= 8 bytes. */
static inline uint64_t qrn_load_le(const uint8_t *bytes, size_t n)
{
    uint64_t value = 0;
    for (size_t i = 0; i < n; i++) value |= (uint64_t)bytes[i] << (8 * i);
    return value;
}

static inline uint64_t qrn_reader_uint(struct qrn_reader *r, size_t n)
{
    const uint8_t *bytes = qrn_reader_take(r, n);
    return bytes ? qrn_load_le(bytes, n) : 0;
}

static inline uint32_t qrn_reader_u32(struct qrn_reader *r)
{
    return (uint32_t)qrn_reader_uint(r, 4);
}

static inline uint64_t qrn_reader_u64(struct qrn_reader *r)
{
    return qrn_reader_uint(r, 8);
}

#endif
