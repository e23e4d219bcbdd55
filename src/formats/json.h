/* SPDX-License-Identifier: MIT
 * JSON from untrusted bytes, as jansson's values, within bounds of depth and memory. */
#ifndef QUERN_FORMATS_JSON_H
#define QUERN_FORMATS_JSON_H

#include <jansson.h>
#include <quern/status.h>

/* Parses n bytes (no NUL needed behind them); duplicate keys, NUL in strings, nesting above 64 and
 * values that would take more than budget bytes are refused before anything is allocated for them.
 * The caller owns *out (json_decref).  Errors: QRN_ERR_FORMAT, QRN_ERR_MEMORY (a shortage inside
 * jansson's lexer looks to us like a wrong token: QRN_ERR_FORMAT).  flags are jansson's:
 * JSON_DECODE_INT_AS_REAL takes integers of any size, JSON_ALLOW_NUL strings with NUL in them. */
enum qrn_status qrn_json_parse_flags(const void *text, size_t n_bytes, size_t budget,
                                     unsigned flags, json_t **out, struct qrn_error *err);

#endif
