/* SPDX-License-Identifier: MIT
 * The walk over new keys and values that the variants of kv_append_paged share: each gives the
 * rounding to halves. */
#ifndef QUERN_BACKENDS_CPU_KV_APPEND_PAGED_WALK_H
#define QUERN_BACKENDS_CPU_KV_APPEND_PAGED_WALK_H

#include <string.h>

#include "backends/cpu/cpu.h"
#include "ops/kv_pages.h"

typedef void kv_round(const float *x, uint16_t *half, int64_t n);

enum { KV_PART = 256 }; /* elements rounded at once */

static inline void kv_store_key(char *page, const float *k, int64_t d_first, int64_t n,
                                int64_t slot, enum qrn_dtype type, kv_round *round)
{
    if (type == QRN_F32) {
        float *to = (float *)(void *)page + d_first * QRN_KV_PAGE_TOKENS + slot;
        for (int64_t i = 0; i < n; i++) to[i * QRN_KV_PAGE_TOKENS] = k[i];
        return;
    }
    uint16_t half[KV_PART], *to = (uint16_t *)(void *)page + d_first * QRN_KV_PAGE_TOKENS + slot;
    round(k, half, n);
    for (int64_t i = 0; i < n; i++) to[i * QRN_KV_PAGE_TOKENS] = half[i];
}

static inline void kv_append_paged_walk(const struct qrn_cpu_lane *lane,
                                        const struct qrn_kv_append_paged_args *a, kv_round *round)
{
    const int64_t n_tokens = a->k.shape[0], d = a->k.shape[2];
    const struct kv_pages p = {.pages = &a->pages,
                               .n_kv_heads = a->k.shape[1],
                               .head_dim = d,
                               .page_offset = a->page_offset,
                               .kv_type = a->kv_type};
    const int32_t *begin = kv_pages_i32(&a->seq_begin), *position = kv_pages_i32(&a->position);
    int64_t first, end, s = 0;
    qrn_cpu_share(lane, n_tokens * p.n_kv_heads, 1, &first, &end);
    for (int64_t r = first; r < end; r++) { /* tokens of one head follow each other in its page */
        const int64_t h = r / n_tokens, t = r % n_tokens;
        if (t == 0) s = 0;
        while (t >= begin[s + 1]) s++;
        const int64_t at = position[s] + t - begin[s], page = at / QRN_KV_PAGE_TOKENS,
                      slot = at % QRN_KV_PAGE_TOKENS;
        const float *k = (const float *)a->k.data + t * a->k.stride[0] + h * a->k.stride[1];
        const float *v = (const float *)a->v.data + t * a->v.stride[0] + h * a->v.stride[1];
        char *keys = kv_page_head(&p, s, page, h, false),
             *values = kv_page_head(&p, s, page, h, true);
        for (int64_t i = 0; i < d; i += KV_PART)
            kv_store_key(keys, k + i, i, d - i < KV_PART ? d - i : KV_PART, slot, a->kv_type,
                         round);
        if (a->kv_type == QRN_F16)
            round(v, (uint16_t *)(void *)values + slot * d, d);
        else
            memcpy((float *)(void *)values + slot * d, v, (size_t)d * sizeof *v);
    }
}

#endif
