/* SPDX-License-Identifier: MIT
 * Unicode normalisation form C.  Only runs of characters that could change, with the character
 * before them, go through utf8proc.  Its decomposition of a whole string sorts marks by insertion,
 * which is quadratic in a long run of marks; so characters are decomposed one by one and sorted
 * here. */
#include "text/nfc.h"

#include <string.h>
#include <utf8proc.h>
#include "text/utf8.h"

#define OPTIONS (UTF8PROC_STABLE | UTF8PROC_COMPOSE)

bool qrn_nfc_is_inert(int32_t c)
{
    if (c < 0x300) return true;
    return (c >= 0x2010 && c <= 0x2027) || /* dashes, quotes, dots */
           (c >= 0x3001 && c <= 0x3029) || /* CJK punctuation */
           (c >= 0x3400 && c <= 0x9fff) || /* CJK ideographs */
           (c >= 0xff01 && c <= 0xff60);   /* full-width forms */
}

static int class_of(int32_t c)
{
    return utf8proc_get_property(c)->combining_class;
}

/* Sorts n marks by combining class, stable.  sorted has n places. */
static void sort_long_run(int32_t *marks, size_t n, int32_t *sorted)
{
    size_t starts[257] = {0};
    for (size_t i = 0; i < n; i++) starts[class_of(marks[i]) + 1]++;
    for (int k = 0; k < 256; k++) starts[k + 1] += starts[k];
    for (size_t i = 0; i < n; i++) sorted[starts[class_of(marks[i])]++] = marks[i];
    memcpy(marks, sorted, n * sizeof *marks);
}

static void sort_short_run(int32_t *marks, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        const int32_t mark = marks[i];
        const int class = class_of(mark);
        size_t j = i;
        for (; j > 0 && class_of(marks[j - 1]) > class; j--) marks[j] = marks[j - 1];
        marks[j] = mark;
    }
}

/* Puts each run of marks (combining class not 0) in order. */
static enum qrn_status sort_marks(struct qrn_nfc *nfc, int32_t *c, size_t n, struct qrn_error *err)
{
    for (size_t i = 0, end; i < n; i = end) {
        end = i + 1;
        if (class_of(c[i]) == 0) continue;
        while (end < n && class_of(c[end]) != 0) end++;
        if (end - i <= 32) {
            sort_short_run(c + i, end - i);
            continue;
        }
        QRN_TRY(qrn_scratch_reserve(&nfc->sorting, end - i, sizeof *c, err));
        sort_long_run(c + i, end - i, nfc->sorting.memory);
    }
    return QRN_OK;
}

/* The characters of text, decomposed, into nfc->characters. */
static enum qrn_status decompose(struct qrn_nfc *nfc, struct qrn_span text, size_t *n_out,
                                 struct qrn_error *err)
{
    size_t n = 0;
    for (size_t i = 0, n_bytes; i < text.n_bytes; i += n_bytes) {
        const int32_t c = qrn_utf8_first(text.bytes + i, &n_bytes);
        for (size_t room = 4;;) { /* no character of Unicode 15 decomposes into more */
            QRN_TRY(qrn_scratch_reserve(&nfc->characters, n + room, sizeof c, err));
            int32_t *const to = (int32_t *)nfc->characters.memory + n;
            int boundary = 0;
            const utf8proc_ssize_t n_parts =
                utf8proc_decompose_char(c, to, (utf8proc_ssize_t)room, OPTIONS, &boundary);
            if (n_parts < 0)
                return qrn_fail(err, QRN_ERR_UNSUPPORTED, "U+%04X: %s", (unsigned)c,
                                utf8proc_errmsg(n_parts));
            if ((size_t)n_parts <= room) {
                n += (size_t)n_parts;
                break;
            }
            room = (size_t)n_parts;
        }
    }
    *n_out = n;
    return QRN_OK;
}

/* Appends text in NFC to the n_out bytes in nfc->text. */
static enum qrn_status append_normalised(struct qrn_nfc *nfc, struct qrn_span text, size_t *n_out,
                                         struct qrn_error *err)
{
    size_t n = 0;
    QRN_TRY(decompose(nfc, text, &n, err));
    int32_t *const c = nfc->characters.memory;
    QRN_TRY(sort_marks(nfc, c, n, err));
    const utf8proc_ssize_t n_composed = utf8proc_normalize_utf32(c, (utf8proc_ssize_t)n, OPTIONS);
    QRN_TRY(qrn_scratch_reserve(&nfc->text, *n_out + 4 * n, 1, err));
    char *const out = nfc->text.memory;
    for (utf8proc_ssize_t i = 0; i < n_composed; i++) *n_out += qrn_utf8_put(out + *n_out, c[i]);
    return QRN_OK;
}

static enum qrn_status append(struct qrn_nfc *nfc, struct qrn_span text, size_t *n_out,
                              struct qrn_error *err)
{
    if (!text.n_bytes) return QRN_OK;
    QRN_TRY(qrn_scratch_reserve(&nfc->text, *n_out + text.n_bytes, 1, err));
    memcpy((char *)nfc->text.memory + *n_out, text.bytes, text.n_bytes);
    *n_out += text.n_bytes;
    return QRN_OK;
}

/* The next run that may change, from `from` on: *start is at the inert character before it (or at
 * from), *end at the inert character after it.  false if there is none. */
static bool next_run(struct qrn_span text, size_t from, size_t *start, size_t *end)
{
    bool in_run = false;
    *start = from;
    for (size_t i = from, n_bytes; i < text.n_bytes; i += n_bytes) {
        const bool is_inert = qrn_nfc_is_inert(qrn_utf8_first(text.bytes + i, &n_bytes));
        if (is_inert && in_run) {
            *end = i;
            return true;
        }
        if (is_inert) *start = i;
        in_run |= !is_inert;
    }
    *end = text.n_bytes;
    return in_run;
}

enum qrn_status qrn_nfc_apply(struct qrn_nfc *nfc, struct qrn_span text, struct qrn_span *out,
                              struct qrn_error *err)
{
    size_t n_out = 0, from = 0, start, end;
    while (next_run(text, from, &start, &end)) {
        QRN_TRY(append(nfc, (struct qrn_span){text.bytes + from, start - from}, &n_out, err));
        const struct qrn_span run = {text.bytes + start, end - start};
        QRN_TRY(append_normalised(nfc, run, &n_out, err));
        from = end;
    }
    if (from == 0) {
        *out = text;
        return QRN_OK;
    }
    const struct qrn_span rest = {text.bytes + from, text.n_bytes - from};
    QRN_TRY(append(nfc, rest, &n_out, err));
    *out = (struct qrn_span){nfc->text.memory, n_out};
    return QRN_OK;
}
