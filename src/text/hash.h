/* SPDX-License-Identifier: MIT
 * Hash tables with linear probing, at most half full. */
#ifndef QUERN_TEXT_HASH_H
#define QUERN_TEXT_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Longer walks do not happen by chance (half full, the longest of a million is about 50): a file
 * made to be slow is refused. */
#define QRN_HASH_MAX_PROBES 1000

/* The finaliser of splitmix64 (Steele, Lea and Flood, OOPSLA 2014). */
static inline uint64_t qrn_hash_mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static inline uint64_t qrn_hash_bytes(const char *bytes, size_t n_bytes)
{
    uint64_t h = n_bytes, word;
    for (; n_bytes >= 8; bytes += 8, n_bytes -= 8) {
        memcpy(&word, bytes, 8);
        h = qrn_hash_mix(h ^ word);
    }
    if (!n_bytes) return h;
    word = 0;
    memcpy(&word, bytes, n_bytes);
    return qrn_hash_mix(h ^ word);
}

/* A power of two, at least 16 and at least 2 * n. */
static inline size_t qrn_hash_n_slots(size_t n)
{
    size_t n_slots = 16;
    while (n_slots / 2 < n) n_slots *= 2;
    return n_slots;
}

#endif
