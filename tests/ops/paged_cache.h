/* SPDX-License-Identifier: MIT
 * Sequences with pages for the tests of the paged ops: each page ends at a guard page and begins as
 * bytes 0xff, which are NaNs in float and half alike. */
#ifndef QUERN_TESTS_PAGED_CACHE_H
#define QUERN_TESTS_PAGED_CACHE_H

#include <string.h>

#include "support/op_test.h"

enum { MAX_SEQS = 8, MAX_PAGES = 40 };

struct paged_cache {
    enum qrn_dtype kv_type;
    int64_t n_seqs, n_kv_heads, head_dim, page_offset;
    /* In guarded memory, which a GPU may read: [MAX_SEQS][MAX_PAGES], [n_seqs + 1], [n_seqs]. */
    uint64_t (*table)[MAX_PAGES];
    int32_t *seq_begin, *position;
};

static inline void cache_init(struct mem *m, struct paged_cache *c, enum qrn_dtype type,
                              int64_t n_seqs, int64_t n_kv_heads, int64_t head_dim)
{
    *c = (struct paged_cache){.kv_type = type,
                              .n_seqs = n_seqs,
                              .n_kv_heads = n_kv_heads,
                              .head_dim = head_dim,
                              .page_offset = 192,
                              .table = mem_guarded(m, MAX_SEQS * sizeof *c->table),
                              .seq_begin = mem_guarded(m, (size_t)(n_seqs + 1) * sizeof(int32_t)),
                              .position = mem_guarded(m, (size_t)n_seqs * sizeof(int32_t))};
    const size_t n = qrn_kv_page_bytes(type, n_kv_heads, head_dim) + (size_t)c->page_offset;
    assert_true(n > (size_t)c->page_offset && n % 64 == 0);
    for (int64_t s = 0; s < n_seqs; s++)
        for (int64_t i = 0; i < MAX_PAGES; i++) {
            void *page = mem_guarded(m, n);
            memset(page, 0xff, n);
            c->table[s][i] = (uint64_t)(uintptr_t)page;
        }
}

static inline size_t cache_page_bytes(const struct paged_cache *c)
{
    return qrn_kv_page_bytes(c->kv_type, c->n_kv_heads, c->head_dim) + (size_t)c->page_offset;
}

static inline void cache_clear(struct paged_cache *c)
{
    for (int64_t s = 0; s < c->n_seqs; s++)
        for (int64_t i = 0; i < MAX_PAGES; i++)
            memset((void *)(uintptr_t)c->table[s][i], 0xff, cache_page_bytes(c));
}

/* The sequences' new tokens: counts[s] of them from position[s] on; returns their number. */
static inline int64_t cache_step(struct paged_cache *c, const int64_t *position,
                                 const int64_t *counts)
{
    for (int64_t s = 0; s < c->n_seqs; s++) {
        c->position[s] = (int32_t)position[s];
        c->seq_begin[s + 1] = c->seq_begin[s] + (int32_t)counts[s];
    }
    return c->seq_begin[c->n_seqs];
}

static inline struct qrn_tensor cache_begin(const struct paged_cache *c)
{
    return qrn_tensor_1d(QRN_I32, c->seq_begin, c->n_seqs + 1);
}

static inline struct qrn_tensor cache_position(const struct paged_cache *c)
{
    return qrn_tensor_1d(QRN_I32, c->position, c->n_seqs);
}

static inline struct qrn_tensor cache_table(const struct paged_cache *c)
{
    return qrn_tensor_2d(QRN_ADDRESS, c->table, c->n_seqs, MAX_PAGES);
}

static inline struct qrn_kv_append_paged_args cache_append(const struct paged_cache *c,
                                                           struct qrn_tensor k, struct qrn_tensor v)
{
    return (struct qrn_kv_append_paged_args){
        .k = k,
        .v = v,
        .seq_begin = cache_begin(c),
        .position = cache_position(c),
        .pages = cache_table(c),
        .page_offset = c->page_offset,
        .kv_type = c->kv_type,
    };
}

static inline struct qrn_attention_paged_args
cache_attend(const struct paged_cache *c, struct qrn_tensor q, struct qrn_tensor out, float scale)
{
    return (struct qrn_attention_paged_args){
        .q = q,
        .out = out,
        .seq_begin = cache_begin(c),
        .position = cache_position(c),
        .pages = cache_table(c),
        .page_offset = c->page_offset,
        .kv_type = c->kv_type,
        .n_kv_heads = c->n_kv_heads,
        .scale = scale,
    };
}

static inline void call(struct qrn_device *dev, enum qrn_op_id op, const void *args)
{
    struct qrn_error err = {0};
    if (qrn_op_call(dev, op, args, &err) != QRN_OK) fail_msg("%s", err.text);
}

#endif
