/* SPDX-License-Identifier: MIT
 * Allocation through the host's allocator, and sizes that cannot wrap around. */
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>
#include "base/pages.h"

static bool is_ours(const struct qrn_allocator *a)
{
    return !a || !a->alloc;
}

void *qrn_alloc(const struct qrn_allocator *a, size_t n_bytes)
{
    size_t n = n_bytes ? n_bytes : 1;
    if (!is_ours(a)) return a->alloc(a->user, n, n < QRN_HUGE_PAGE ? QRN_ALIGNMENT : QRN_HUGE_PAGE);
    if (qrn_pages_wanted(n)) return qrn_pages_alloc(n);
    if (n > SIZE_MAX - QRN_ALIGNMENT) return NULL;
    n = (n + QRN_ALIGNMENT - 1) / QRN_ALIGNMENT * QRN_ALIGNMENT;
    return aligned_alloc(QRN_ALIGNMENT, n);
}

void *qrn_alloc_zeroed(const struct qrn_allocator *a, size_t n_bytes)
{
    void *memory = qrn_alloc(a, n_bytes);
    const bool zeroed = is_ours(a) && qrn_pages_wanted(n_bytes);
    if (memory && !zeroed) memset(memory, 0, n_bytes);
    return memory;
}

void qrn_free(const struct qrn_allocator *a, void *memory, size_t n_bytes)
{
    if (!memory) return;
    if (!is_ours(a))
        a->free(a->user, memory, n_bytes ? n_bytes : 1);
    else if (qrn_pages_wanted(n_bytes))
        qrn_pages_free(memory, n_bytes);
    else
        free(memory);
}

void *qrn_realloc(const struct qrn_allocator *a, void *old, size_t old_bytes, size_t n_bytes)
{
    void *memory = qrn_alloc(a, n_bytes);
    if (!memory) return NULL;
    if (old) memcpy(memory, old, old_bytes < n_bytes ? old_bytes : n_bytes);
    qrn_free(a, old, old_bytes);
    return memory;
}

char *qrn_strdup(const struct qrn_allocator *a, const char *text)
{
    const size_t n = strlen(text) + 1;
    char *copy = qrn_alloc(a, n);
    if (copy) memcpy(copy, text, n);
    return copy;
}

void qrn_strfree(const struct qrn_allocator *a, char *text)
{
    if (text) qrn_free(a, text, strlen(text) + 1);
}

bool qrn_mul_size(size_t a, size_t b, size_t *out)
{
    if (b && a > SIZE_MAX / b) return false;
    *out = a * b;
    return true;
}

bool qrn_add_size(size_t a, size_t b, size_t *out)
{
    if (a > SIZE_MAX - b) return false;
    *out = a + b;
    return true;
}
