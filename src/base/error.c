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
    char text[sizeof err->text];
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    if (n < 0) n = 0;
    if ((size_t)n < sizeof text)
        (void)snprintf(text + n, sizeof text - (size_t)n, ": %.*s", (int)sizeof err->text - 1, err->text);
    memcpy(err->text, text, sizeof text);
    err->status = status;
    return status;
}
