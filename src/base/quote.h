/* SPDX-License-Identifier: MIT
 * Names from files in error texts: short, and without bytes that a terminal would obey. */
#ifndef QUERN_BASE_QUOTE_H
#define QUERN_BASE_QUOTE_H

#include <stddef.h>

struct qrn_quoted {
    char text[100];
};

/* The bytes in double quotes, control bytes as '?', a long name cut: qrn_quote(name, n).text. */
struct qrn_quoted qrn_quote(const char *bytes, size_t n_bytes);

#endif
