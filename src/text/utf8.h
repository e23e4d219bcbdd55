/* SPDX-License-Identifier: MIT
 * UTF-8: the only place that decodes and encodes it.  A decoder that takes a byte at a time (the
 * WHATWG encoding standard's), and its shorter sister for text that is known to be valid. */
#ifndef QUERN_TEXT_UTF8_H
#define QUERN_TEXT_UTF8_H

#include <stddef.h>
#include <stdint.h>

#define QRN_REPLACEMENT 0xFFFD

enum {
    QRN_UTF8_MORE = -1, /* the character is not complete yet */
    QRN_UTF8_BAD = -2,  /* this byte can begin nothing: it is one error */
    QRN_UTF8_CUT = -3   /* the bytes before are one error; this one was not taken, push it again */
};

/* Starts as zeros, and is zeros between characters. */
struct qrn_utf8 {
    int32_t code_point; /* the bits so far */
    uint8_t n_missing;
    uint8_t low, high; /* limits of the next byte */
};

/* Returns a complete code point (0..0x10FFFF, no surrogates) or one of the above. */
static inline int32_t qrn_utf8_push(struct qrn_utf8 *d, uint8_t byte)
{
    if (d->n_missing) {
        if (byte < d->low || byte > d->high) {
            *d = (struct qrn_utf8){0};
            return QRN_UTF8_CUT;
        }
        const int32_t c = d->code_point << 6 | (byte & 0x3f);
        d->code_point = c;
        d->low = 0x80;
        d->high = 0xbf;
        if (--d->n_missing) return QRN_UTF8_MORE;
        *d = (struct qrn_utf8){0};
        return c;
    }
    if (byte < 0x80) return byte;
    if (byte < 0xc2 || byte > 0xf4) return QRN_UTF8_BAD;
    /* The second byte is limited where the first alone would allow overlong forms, surrogates or
     * more than U+10FFFF. */
    d->low = byte == 0xe0 ? 0xa0 : byte == 0xf0 ? 0x90 : 0x80;
    d->high = byte == 0xed ? 0x9f : byte == 0xf4 ? 0x8f : 0xbf;
    d->n_missing = byte < 0xe0 ? 1 : byte < 0xf0 ? 2 : 3;
    d->code_point = byte & (0x3f >> d->n_missing);
    return QRN_UTF8_MORE;
}

/* The first code point of valid UTF-8 that is not empty; *n_bytes becomes its length. */
static inline int32_t qrn_utf8_first(const char *text, size_t *n_bytes)
{
    const uint8_t *p = (const uint8_t *)text;
    if (p[0] < 0x80) {
        *n_bytes = 1;
        return p[0];
    }
    if (p[0] < 0xe0) {
        *n_bytes = 2;
        return (p[0] & 0x1f) << 6 | (p[1] & 0x3f);
    }
    if (p[0] < 0xf0) {
        *n_bytes = 3;
        return (p[0] & 0x0f) << 12 | (p[1] & 0x3f) << 6 | (p[2] & 0x3f);
    }
    *n_bytes = 4;
    return (p[0] & 0x07) << 18 | (p[1] & 0x3f) << 12 | (p[2] & 0x3f) << 6 | (p[3] & 0x3f);
}

/* Writes a code point, returns its length: 1 to 4. */
static inline size_t qrn_utf8_put(char *out, int32_t c)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xc0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xe0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 0x3f));
        out[2] = (char)(0x80 | (c & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 0x3f));
    out[2] = (char)(0x80 | (c >> 6 & 0x3f));
    out[3] = (char)(0x80 | (c & 0x3f));
    return 4;
}

/* Decodes n_bytes more bytes of a text into out, with U+FFFD for each error, and returns how many
 * bytes were written: at most 3 * n_bytes + 3, and at most n_bytes + 3 if the bytes continue valid
 * UTF-8.  An unfinished character stays in d. */
size_t qrn_utf8_repair(struct qrn_utf8 *d, const char *bytes, size_t n_bytes, char *out);

/* Ends the text: U+FFFD if a character was left unfinished; returns 3 or 0. */
size_t qrn_utf8_finish(struct qrn_utf8 *d, char *out);

/* How many bytes at the beginning are valid UTF-8: n_bytes if all are. */
size_t qrn_utf8_n_valid(const char *bytes, size_t n_bytes);

#endif
