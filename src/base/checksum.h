/* SPDX-License-Identifier: MIT
 * A fast 64-bit checksum against accidents: not against an adversary. */
#ifndef QUERN_BASE_CHECKSUM_H
#define QUERN_BASE_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define QRN_HASH_START 0x243f6a8885a308d3u /* digits of pi */

static inline uint64_t qrn_hash_word(uint64_t h, uint64_t word)
{
    h = (h ^ word) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

/* Of a piece of n bytes after what h stands for; pieces are part of what is hashed. */
static inline uint64_t qrn_hash_bytes(uint64_t h, const void *bytes, size_t n)
{
    const char *p = bytes;
    h = qrn_hash_word(h, n);
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        h = qrn_hash_word(h, word);
    }
    uint64_t rest = 0;
    if (n) memcpy(&rest, p, n);
    return qrn_hash_word(h, rest);
}

#endif
