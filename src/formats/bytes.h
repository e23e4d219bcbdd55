/* SPDX-License-Identifier: MIT
 * Bytes that grow: headers being written.  Failure sticks: append a group, look at failed once. */
#ifndef QUERN_FORMATS_BYTES_H
#define QUERN_FORMATS_BYTES_H

#include <stdbool.h>
#include <quern/host.h>

struct qrn_bytes {
    uint8_t *bytes;
    size_t n_bytes, n_reserved;
    bool failed; /* memory was short; bytes is what came before */
    struct qrn_allocator allocator;
};

void qrn_bytes_append(struct qrn_bytes *b, const void *bytes, size_t n_bytes);
void qrn_bytes_text(struct qrn_bytes *b, const char *text);
/* An integer of n <= 8 bytes, little-endian. */
void qrn_bytes_uint(struct qrn_bytes *b, uint64_t value, size_t n);
void qrn_bytes_decimal(struct qrn_bytes *b, uint64_t value);
void qrn_bytes_free(struct qrn_bytes *b);

#endif
