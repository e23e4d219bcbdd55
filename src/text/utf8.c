/* SPDX-License-Identifier: MIT
 * Checking and repairing UTF-8. */
#include "text/utf8.h"

#include <stdbool.h>
#include <string.h>

static bool eight_are_ascii(const char *bytes)
{
    uint64_t word;
    memcpy(&word, bytes, sizeof word);
    return (word & 0x8080808080808080u) == 0;
}

size_t qrn_utf8_n_valid(const char *bytes, size_t n_bytes)
{
    struct qrn_utf8 d = {0};
    size_t n_valid = 0, i = 0;
    while (i < n_bytes) {
        if (!d.n_missing && n_bytes - i >= 8 && eight_are_ascii(bytes + i)) {
            i += 8;
            n_valid = i;
            continue;
        }
        const int32_t c = qrn_utf8_push(&d, (uint8_t)bytes[i++]);
        if (c == QRN_UTF8_BAD || c == QRN_UTF8_CUT) break;
        if (c >= 0) n_valid = i;
    }
    return n_valid;
}

size_t qrn_utf8_repair(struct qrn_utf8 *d, const char *bytes, size_t n_bytes, char *out)
{
    size_t n = 0, i = 0;
    while (i < n_bytes) {
        if (!d->n_missing && n_bytes - i >= 8 && eight_are_ascii(bytes + i)) {
            memcpy(out + n, bytes + i, 8);
            n += 8;
            i += 8;
            continue;
        }
        const int32_t c = qrn_utf8_push(d, (uint8_t)bytes[i]);
        if (c != QRN_UTF8_CUT) i++;
        if (c != QRN_UTF8_MORE) n += qrn_utf8_put(out + n, c < 0 ? QRN_REPLACEMENT : c);
    }
    return n;
}

size_t qrn_utf8_finish(struct qrn_utf8 *d, char *out)
{
    if (!d->n_missing) return 0;
    *d = (struct qrn_utf8){0};
    return qrn_utf8_put(out, QRN_REPLACEMENT);
}
