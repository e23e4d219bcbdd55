/* SPDX-License-Identifier: MIT
 * Finding added tokens: a sorted list, narrowed byte by byte. */
#include "text/added.h"

#include <stdlib.h>
#include "base/memory.h"

enum qrn_status qrn_added_init(struct qrn_added *a, size_t n, struct qrn_error *err)
{
    size_t n_bytes;
    if (!qrn_mul_size(n, sizeof *a->tokens, &n_bytes))
        return qrn_fail_memory(err, SIZE_MAX, "added tokens");
    a->n_reserved = n;
    a->tokens = qrn_alloc(&a->allocator, n_bytes);
    return a->tokens ? QRN_OK : qrn_fail_memory(err, n_bytes, "added tokens");
}

void qrn_added_free(struct qrn_added *a)
{
    qrn_free(&a->allocator, a->tokens, a->n_reserved * sizeof *a->tokens);
}

enum qrn_status qrn_added_add(struct qrn_added *a, struct qrn_span bytes, int32_t id,
                              bool is_control, struct qrn_error *err)
{
    if (bytes.n_bytes > QRN_ADDED_MAX_BYTES)
        return qrn_fail(err, QRN_ERR_UNSUPPORTED,
                        "added token %d has %zu bytes, at most %d are supported", (int)id,
                        bytes.n_bytes, QRN_ADDED_MAX_BYTES);
    if (!bytes.n_bytes) return QRN_OK;
    a->tokens[a->n_tokens++] =
        (struct qrn_added_token){.bytes = bytes, .id = id, .is_control = is_control};
    a->begins[(uint8_t)bytes.bytes[0]] |= is_control ? 2 : 1;
    return QRN_OK;
}

static int compare_bytes(struct qrn_span a, struct qrn_span b)
{
    const int order = memcmp(a.bytes, b.bytes, a.n_bytes < b.n_bytes ? a.n_bytes : b.n_bytes);
    return order ? order : (a.n_bytes > b.n_bytes) - (a.n_bytes < b.n_bytes);
}

static int compare(const void *x, const void *y)
{
    const struct qrn_added_token *const a = x, *const b = y;
    const int order = compare_bytes(a->bytes, b->bytes);
    if (order) return order;
    if (a->is_control != b->is_control) return a->is_control ? 1 : -1;
    return (a->id > b->id) - (a->id < b->id);
}

static void drop_repeated(struct qrn_added *a)
{
    size_t n = 0;
    for (size_t i = 0; i < a->n_tokens; i++) {
        if (n && a->tokens[n - 1].is_control == a->tokens[i].is_control &&
            !compare_bytes(a->tokens[n - 1].bytes, a->tokens[i].bytes))
            continue;
        a->tokens[n++] = a->tokens[i];
    }
    a->n_tokens = n;
}

void qrn_added_sort(struct qrn_added *a)
{
    if (a->n_tokens) qsort(a->tokens, a->n_tokens, sizeof *a->tokens, compare);
    drop_repeated(a);
    size_t i = 0;
    for (size_t byte = 0; byte < 256; byte++) {
        a->first[byte] = i;
        while (i < a->n_tokens && (uint8_t)a->tokens[i].bytes.bytes[0] == byte) i++;
    }
    a->first[256] = i;
}

int32_t qrn_added_find(const struct qrn_added *a, struct qrn_span bytes)
{
    if (!bytes.n_bytes) return -1;
    size_t low = a->first[(uint8_t)bytes.bytes[0]], high = a->first[(uint8_t)bytes.bytes[0] + 1];
    const size_t end = high;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (compare_bytes(a->tokens[middle].bytes, bytes) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < end && !compare_bytes(a->tokens[low].bytes, bytes) ? a->tokens[low].id : -1;
}

/* The first of low .. high - 1, all longer than depth, whose byte at depth is at least byte. */
static size_t lower_bound(const struct qrn_added *a, size_t low, size_t high, size_t depth,
                          unsigned byte)
{
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if ((uint8_t)a->tokens[middle].bytes.bytes[depth] < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The longest token that text, not empty, begins with. */
static const struct qrn_added_token *longest(const struct qrn_added *a, struct qrn_span text,
                                             bool with_control)
{
    const struct qrn_added_token *found = NULL;
    size_t low = a->first[(uint8_t)text.bytes[0]], high = a->first[(uint8_t)text.bytes[0] + 1];
    for (size_t depth = 1; low < high; depth++) {
        const struct qrn_added_token *found_here = NULL;
        for (; low < high && a->tokens[low].bytes.n_bytes == depth; low++)
            if (!found_here && (with_control || !a->tokens[low].is_control))
                found_here = &a->tokens[low];
        if (found_here) found = found_here;
        if (depth == text.n_bytes) break;
        const unsigned byte = (uint8_t)text.bytes[depth];
        low = lower_bound(a, low, high, depth, byte);
        high = lower_bound(a, low, high, depth, byte + 1);
    }
    return found;
}

const struct qrn_added_token *qrn_added_search(const struct qrn_added *a, struct qrn_span text,
                                               size_t from, bool with_control, size_t *at)
{
    const uint8_t wanted = with_control ? 3 : 1;
    for (size_t i = from; i < text.n_bytes; i++) {
        if (!(a->begins[(uint8_t)text.bytes[i]] & wanted)) continue;
        const struct qrn_span rest = {text.bytes + i, text.n_bytes - i};
        const struct qrn_added_token *const token = longest(a, rest, with_control);
        if (!token) continue;
        *at = i;
        return token;
    }
    return NULL;
}
