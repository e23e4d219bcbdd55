/* SPDX-License-Identifier: MIT
 * Making a status and its sentence in one expression. */
#ifndef QUERN_BASE_ERROR_H
#define QUERN_BASE_ERROR_H

#include <stdarg.h>
#include <quern/status.h>

#if defined(__GNUC__)
#define QRN_PRINTF(format_at, args_at) __attribute__((format(printf, format_at, args_at)))
#else
#define QRN_PRINTF(format_at, args_at)
#endif

/* Writes the sentence into err (which may be NULL) and returns status. */
enum qrn_status qrn_fail(struct qrn_error *err, enum qrn_status status, const char *format, ...)
    QRN_PRINTF(3, 4);

/* The usual sentence when memory is short. */
enum qrn_status qrn_fail_memory(struct qrn_error *err, size_t n_bytes, const char *what);

/* Puts "prefix: " before the text that a callee left in err; returns err's status. */
enum qrn_status qrn_error_prefix(struct qrn_error *err, enum qrn_status status, const char *format,
                                 ...) QRN_PRINTF(3, 4);

/* Passes a failure up. */
#define QRN_TRY(expr)                                              \
    do {                                                           \
        const enum qrn_status qrn_try_status_ = (expr);            \
        if (qrn_try_status_ != QRN_OK) return qrn_try_status_;     \
    } while (0)

#endif
