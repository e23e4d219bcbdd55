/* SPDX-License-Identifier: MIT
 * What every call returns, and how it says why. */
#ifndef QUERN_STATUS_H
#define QUERN_STATUS_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define QRN_API __attribute__((visibility("default")))
#else
#define QRN_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* X(NAME, "text").  Append only: the values are ABI. */
#define QRN_STATUS_LIST(X)                                                  \
    X(OK, "success")                                                        \
    X(ERR_ARGUMENT, "an argument has a value that is not allowed")          \
    X(ERR_SHAPE, "tensor shapes do not agree")                              \
    X(ERR_DTYPE, "data type not accepted here")                             \
    X(ERR_UNSUPPORTED, "valid, but not supported by this build or device")  \
    X(ERR_MEMORY, "out of memory")                                          \
    X(ERR_IO, "file cannot be read or written")                             \
    X(ERR_FORMAT, "file is damaged or not of the format it claims")         \
    X(ERR_LIMIT, "a limit or budget that the caller set is exceeded")       \
    X(ERR_STATE, "the object cannot do this in its present state")          \
    X(ERR_MISMATCH, "made by another model, build or set of options")       \
    X(ERR_CANCELLED, "cancelled by the caller")                             \
    X(ERR_DEVICE, "the device failed")

enum qrn_status {
#define X(name, text) QRN_##name,
    QRN_STATUS_LIST(X)
#undef X
    QRN_STATUS_COUNT
};

/**
 * The reason of a failure, in the caller's memory.  Every function that can fail takes a pointer
 * to one, which may be NULL.  It is written only on failure.
 */
struct qrn_error {
    enum qrn_status status;
    char text[500]; /* one sentence, NUL-terminated: what, where, expected and actual numbers */
};

/** "QRN_ERR_SHAPE" for QRN_ERR_SHAPE; "unknown" for a value out of range.  Any thread. */
QRN_API const char *qrn_status_name(enum qrn_status status);

/** The general meaning of a status: "tensor shapes do not agree".  Any thread. */
QRN_API const char *qrn_status_text(enum qrn_status status);

#ifdef __cplusplus
}
#endif
#endif
