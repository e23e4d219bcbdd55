/* SPDX-License-Identifier: MIT
 * Status names and texts; the caller's error struct. */
#include "base/error.h"

#include <stdio.h>
#include <string.h>

const char *qrn_status_name(enum qrn_status status)
{
    static const char *const names[] = {
#define X(name, text) "QRN_" #name,
        QRN_STATUS_LIST(X)
#undef X
    };
    return (unsigned)status < QRN_STATUS_COUNT ? names[status] : "unknown";
}

const char *qrn_status_text(enum qrn_status status)
{
    static const char *const texts[] = {
#define X(name, text) text,
        QRN_STATUS_LIST(X)
#undef X
    };
    return (unsigned)status < QRN_STATUS_COUNT ? texts[status] : "unknown status";
}

enum qrn_status qrn_fail(struct qrn_error *err, enum qrn_status status, const char *format, ...)
{
    if (!err) return status;
    va_list ap;
    va_start(ap, format);
    err->status = status;
    (void)vsnprintf(err->text, sizeof err->text, format, ap);
    va_end(ap);
    return status;
}

enum qrn_status qrn_fail_memory(struct qrn_error *err, size_t n_bytes, const char *what)
{
    return qrn_fail(err, QRN_ERR_MEMORY, "out of memory: %zu bytes for %s", n_bytes, what);
}

enum qrn_status qrn_error_prefix(struct qrn_error *err, enum qrn_status status, const char *format,
                                 ...)
{
    if (!err) return status;
    char text[sizeof err->text]; /* the callee's sentence, cut at the end if need be */
    memcpy(text, err->text, sizeof text);
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(err->text, sizeof err->text, format, ap);
    va_end(ap);
    if (n < 0) n = 0;
    for (const char *p = ": "; *p && (size_t)n < sizeof err->text - 1; p++) err->text[n++] = *p;
    for (const char *p = text; *p && (size_t)n < sizeof err->text - 1; p++) err->text[n++] = *p;
    err->text[(size_t)n < sizeof err->text ? (size_t)n : sizeof err->text - 1] = '\0';
    err->status = status;
    return status;
}
