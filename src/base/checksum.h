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

/* A piece that comes in parts: its bytes in order, however they are cut. */
struct qrn_hash_piece {
    uint64_t hash;
    char rest[8]; /* of a word */
    size_t n_rest;
};

/* Of n bytes in all, after what h stands for; pieces are part of what is hashed. */
static inline struct qrn_hash_piece qrn_hash_begin(uint64_t h, size_t n)
{
    return (struct qrn_hash_piece){.hash = qrn_hash_word(h, n)};
}

static inline void qrn_hash_part(struct qrn_hash_piece *piece, const void *bytes, size_t n)
{
    const char *p = bytes;
    uint64_t word;
    for (; n && piece->n_rest; n--) {
        piece->rest[piece->n_rest++] = *p++;
        if (piece->n_rest < 8) continue;
        memcpy(&word, piece->rest, 8);
        piece->hash = qrn_hash_word(piece->hash, word);
        piece->n_rest = 0;
    }
    for (; n >= 8; n -= 8, p += 8) {
        memcpy(&word, p, 8);
        piece->hash = qrn_hash_word(piece->hash, word);
    }
    if (n) memcpy(piece->rest, p, n);
    piece->n_rest += n;
}

static inline uint64_t qrn_hash_end(const struct qrn_hash_piece *piece)
{
    uint64_t rest = 0;
    if (piece->n_rest) memcpy(&rest, piece->rest, piece->n_rest);
    return qrn_hash_word(piece->hash, rest);
}

/* A piece in one part. */
static inline uint64_t qrn_hash_bytes(uint64_t h, const void *bytes, size_t n)
{
    struct qrn_hash_piece piece = qrn_hash_begin(h, n);
    qrn_hash_part(&piece, bytes, n);
    return qrn_hash_end(&piece);
}

#endif
