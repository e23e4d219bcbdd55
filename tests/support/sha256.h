/* SPDX-License-Identifier: MIT
 * SHA-256 of a piece of memory, to compare with figures made elsewhere. */
#ifndef TESTS_SUPPORT_SHA256_H
#define TESTS_SUPPORT_SHA256_H

#include <stddef.h>

/* Writes 64 hexadecimal digits and a NUL. */
void sha256_hex(const void *data, size_t n_bytes, char hex[65]);

#endif
