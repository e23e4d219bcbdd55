/* SPDX-License-Identifier: MIT
 * Some bytes that belong to someone else. */
#ifndef QUERN_SPAN_H
#define QUERN_SPAN_H

#include <stddef.h>

/** n_bytes bytes, not NUL-terminated in general; bytes may be NULL when n_bytes is 0. */
struct qrn_span {
    const char *bytes;
    size_t n_bytes;
};

#endif
