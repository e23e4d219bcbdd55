/* SPDX-License-Identifier: MIT
 * GPT-2's alphabet.  Bytes that print in Latin-1 stand for themselves; the 68 others are, in
 * ascending order, U+0100 to U+0143. */
#include "text/alphabet.h"

#include "text/utf8.h"

static int byte_of(int32_t c)
{
    if ((c >= 0x21 && c <= 0x7e) || (c >= 0xa1 && c <= 0xac) || (c >= 0xae && c <= 0xff)) return c;
    if (c >= 0x100 && c <= 0x120) return c - 0x100;        /* 0x00 .. 0x20 */
    if (c >= 0x121 && c <= 0x142) return c - 0x121 + 0x7f; /* 0x7f .. 0xa0 */
    if (c == 0x143) return 0xad;
    return -1;
}

bool qrn_alphabet_bytes(struct qrn_span text, char *out, size_t *n_out)
{
    struct qrn_utf8 d = {0};
    size_t n = 0;
    for (size_t i = 0; i < text.n_bytes; i++) {
        const int32_t c = qrn_utf8_push(&d, (uint8_t)text.bytes[i]);
        if (c == QRN_UTF8_MORE) continue;
        const int byte = byte_of(c);
        if (byte < 0) return false;
        out[n++] = (char)byte;
    }
    if (d.n_missing) return false;
    *n_out = n;
    return true;
}
