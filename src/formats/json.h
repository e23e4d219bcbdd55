/* SPDX-License-Identifier: MIT
 * JSON from untrusted bytes, as jansson's values, within bounds of depth and memory. */
#ifndef QUERN_FORMATS_JSON_H
#define QUERN_FORMATS_JSON_H

#include <jansson.h>
#include <quern/status.h>

/* Bytes that parsing text of n bytes may take, values included (tensor lists of toy files take up to
 * ten times their text: hence the constant). */
static inline size_t qrn_json_budget(size_t n_bytes)
{
    return n_bytes / 2 * 5 + ((size_t)24 << 20);
}

/* Parses n bytes (no NUL needed behind them); duplicate keys, NUL in strings, nesting above 64 and
 * values that would take more than budget bytes are refused before anything is allocated for them.
 * The caller owns *out (json_decref).  Errors: QRN_ERR_FORMAT, QRN_ERR_MEMORY (a shortage inside
 * jansson's lexer looks to us like a wrong token: QRN_ERR_FORMAT). */
enum qrn_status qrn_json_parse(const void *text, size_t n_bytes, size_t budget, json_t **out,
                               struct qrn_error *err);

/* The same with flags of jansson besides: JSON_DECODE_INT_AS_REAL takes integers of any size,
 * JSON_ALLOW_NUL strings with NUL in them. */
enum qrn_status qrn_json_parse_flags(const void *text, size_t n_bytes, size_t budget,
                                     unsigned flags, json_t **out, struct qrn_error *err);

#endif
