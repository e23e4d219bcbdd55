/* SPDX-License-Identifier: MIT
 * Names from files in error texts: short, and without bytes that a terminal would obey. */
#include "base/quote.h"

#include <string.h>

struct qrn_quoted qrn_quote(const char *bytes, size_t n_bytes)
{
    struct qrn_quoted q;
    const size_t most = sizeof q.text - sizeof "\"...\"";
    const size_t n = n_bytes > most ? most : n_bytes;
    char *at = q.text;
    *at++ = '"';
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)bytes[i];
        *at++ = c < 0x20 || c == 0x7f || c == '"' ? '?' : bytes[i];
    }
    if (n < n_bytes) {
        while (at > q.text + 1 && ((unsigned char)at[-1] & 0xc0) == 0x80)
            at--; /* whole characters */
        if (at > q.text + 1 && (unsigned char)at[-1] >= 0xc0) at--;
        memcpy(at, "...", 3);
        at += 3;
    }
    *at++ = '"';
    *at = '\0';
    return q;
}
