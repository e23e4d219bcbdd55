/* SPDX-License-Identifier: MIT
 * Allocation through the host's allocator, and sizes that cannot wrap around. */
#ifndef QUERN_BASE_MEMORY_H
#define QUERN_BASE_MEMORY_H

#include <stdbool.h>
#include <quern/host.h>

#define QRN_ALIGNMENT 64 /* a cache line, and the widest vector */

/* NULL means malloc.  n_bytes may be 0: a pointer that can be freed.  NULL on failure. */
void *qrn_alloc(const struct qrn_allocator *a, size_t n_bytes);
void *qrn_alloc_zeroed(const struct qrn_allocator *a, size_t n_bytes);
void *qrn_realloc(const struct qrn_allocator *a, void *old, size_t old_bytes, size_t n_bytes);
void qrn_free(const struct qrn_allocator *a, void *memory, size_t n_bytes); /* NULL is allowed */

char *qrn_strdup(const struct qrn_allocator *a, const char *text);
void qrn_strfree(const struct qrn_allocator *a, char *text);

/* False when the result does not fit; *out is then left alone. */
bool qrn_mul_size(size_t a, size_t b, size_t *out);
bool qrn_add_size(size_t a, size_t b, size_t *out);

#endif
