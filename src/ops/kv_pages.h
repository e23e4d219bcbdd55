/* SPDX-License-Identifier: MIT
 * Sequences whose keys and values lie in pages: what kv_append_paged and attention_paged check
 * alike, and where things are. */
#ifndef QUERN_OPS_KV_PAGES_H
#define QUERN_OPS_KV_PAGES_H

#include "core/op.h"

struct kv_pages {
    const char *op;
    const struct qrn_tensor *seq_begin, *position, *pages;
    int64_t n_tokens, n_kv_heads, head_dim, page_offset;
    enum qrn_dtype kv_type;
};

enum qrn_status qrn_kv_pages_check(const struct kv_pages *p, struct qrn_error *err);

/* Bounds, positions and the addresses that are used; from_first: those before the new tokens too.
 */
enum qrn_status qrn_kv_pages_check_data(const struct kv_pages *p, bool from_first,
                                        struct qrn_error *err);

static inline int64_t kv_pages_n_seqs(const struct qrn_tensor *position)
{
    return position->shape[0];
}

static inline const int32_t *kv_pages_i32(const struct qrn_tensor *t)
{
    return t->data;
}

/* Keys of a head in a page: [head_dim][64]; values: [64][head_dim].  Address of element 0. */
static inline char *kv_page_head(const struct kv_pages *p, int64_t seq, int64_t page, int64_t head,
                                 bool values)
{
    const uint64_t *table = p->pages->data;
    const uint64_t address = table[seq * p->pages->stride[0] + page];
    const int64_t element = p->kv_type == QRN_F16 ? 2 : 4;
    const int64_t at = (values ? p->n_kv_heads : 0) + head;
    return (char *)(uintptr_t)address + p->page_offset +
           at * QRN_KV_PAGE_TOKENS * p->head_dim * element;
}

#endif
