/* SPDX-License-Identifier: MIT
 * Bytes that grow: headers being written.  Failure sticks: append a group, look at failed once. */
#ifndef QUERN_FORMATS_BUFFER_H
#define QUERN_FORMATS_BUFFER_H

#include <stdbool.h>
#include <quern/host.h>

struct qrn_buffer {
    uint8_t *bytes;
    size_t n_bytes, n_reserved;
    bool failed; /* memory was short; bytes is what came before */
    struct qrn_allocator allocator;
};

void qrn_buffer_append(struct qrn_buffer *b, const void *bytes, size_t n_bytes);
void qrn_buffer_text(struct qrn_buffer *b, const char *text);
/* An integer of n <= 8 bytes, little-endian. */
void qrn_buffer_uint(struct qrn_buffer *b, uint64_t value, size_t n);
void qrn_buffer_decimal(struct qrn_buffer *b, uint64_t value);
void qrn_buffer_free(struct qrn_buffer *b);

#endif
