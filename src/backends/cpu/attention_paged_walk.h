/* SPDX-License-Identifier: MIT
 * The walk that the variants of attention_paged share: where rows and blocks of sequences in pages
 * are.  A unit of few rows reads pages as they are; for more, a block is packed once for all. */
#ifndef QUERN_BACKENDS_CPU_ATTENTION_PAGED_WALK_H
#define QUERN_BACKENDS_CPU_ATTENTION_PAGED_WALK_H

#include "backends/cpu/attention_units.h"
#include "ops/kv_pages.h"

enum { DIRECT_ROWS = 16 /* up to which pages are read as they are */ };

struct paged {
    struct attention_work work;
    const struct qrn_attention_paged_args *a;
    struct kv_pages pages;
};

static inline const struct paged *paged_of(const struct attention_work *w)
{
    return (const struct paged *)w;
}

static inline int64_t paged_n_tokens(const struct attention_work *w, int64_t seq)
{
    const int32_t *begin = kv_pages_i32(&paged_of(w)->a->seq_begin);
    return begin[seq + 1] - begin[seq];
}

static inline void paged_range(const struct attention_work *w, int64_t seq, int64_t token,
                               int64_t *begin, int64_t *end)
{
    const struct qrn_attention_paged_args *a = paged_of(w)->a;
    const int64_t p = kv_pages_i32(&a->position)[seq] + token;
    qrn_attention_range(p, true, a->window, p + 1, begin, end);
}

/* Row r of a unit in q or out. */
static inline float *paged_row(const struct attention_work *w, const struct qrn_tensor *t,
                               const struct attention_unit *u, int64_t r)
{
    const int32_t *begin = kv_pages_i32(&paged_of(w)->a->seq_begin);
    const int64_t token = begin[u->seq] + u->token + r / u->n_heads;
    return (float *)t->data + token * t->stride[0] + (u->head + r % u->n_heads) * t->stride[1];
}

static inline const float *paged_q(const struct attention_work *w, const struct attention_unit *u,
                                   int64_t r)
{
    return paged_row(w, &paged_of(w)->a->q, u, r);
}

static inline float *paged_out(const struct attention_work *w, const struct attention_unit *u,
                               int64_t r)
{
    return paged_row(w, &paged_of(w)->a->out, u, r);
}

static inline bool paged_block(const struct attention_work *w, const struct attention_unit *u,
                               int64_t block, struct attention_panel *panel)
{
    const struct paged *p = paged_of(w);
    const int64_t next = block + 1 < u->end_block ? block + 1 : block;
    const void *k = kv_page_head(&p->pages, u->seq, block, u->kv_head, false),
               *v = kv_page_head(&p->pages, u->seq, block, u->kv_head, true);
    if (u->n_rows > DIRECT_ROWS || (p->a->kv_type == QRN_F16 && !w->isa->reads_halves)) {
        const struct attention_source keys = {k, p->a->kv_type, ATTENTION_BLOCK},
                                      values = {v, p->a->kv_type, w->d_v};
        w->isa->pack_keys(&keys, w->d_k, w->keys);
        w->isa->pack_values(&values, ATTENTION_BLOCK, w->d_v, w->values);
        panel_is_packed(w, panel);
        return true;
    }
    panel->k = k;
    panel->v = v;
    panel->k_panel = panel->v_panel = w->isa->width;
    panel->k_dim = ATTENTION_BLOCK;
    panel->v_key = w->d_v;
    panel->half = p->a->kv_type == QRN_F16;
    panel->ahead = kv_page_head(&p->pages, u->seq, next, u->kv_head, false);
    return true;
}

static inline size_t attention_paged_scratch_bytes(const void *args, int n_threads)
{
    const struct qrn_attention_paged_args *a = args;
    return attention_work_bytes(a->q.shape[2], a->q.shape[2], 0, n_threads);
}

static inline void attention_paged_walk(struct qrn_cpu_lane *lane,
                                        const struct qrn_attention_paged_args *a,
                                        const struct attention_isa *isa)
{
    struct paged p = {
        .work = {.isa = isa,
                 .n_seqs = kv_pages_n_seqs(&a->position),
                 .n_kv_heads = a->n_kv_heads,
                 .group = a->q.shape[1] / a->n_kv_heads,
                 .d_k = a->q.shape[2],
                 .d_v = a->q.shape[2],
                 .scale = a->scale,
                 .softcap = a->softcap,
                 .n_tokens = paged_n_tokens,
                 .range = paged_range,
                 .q = paged_q,
                 .out = paged_out,
                 .block = paged_block},
        .a = a,
        .pages = {.pages = &a->pages,
                  .n_kv_heads = a->n_kv_heads,
                  .head_dim = a->q.shape[2],
                  .page_offset = a->page_offset,
                  .kv_type = a->kv_type},
    };
    if (qrn_tensor_n_elements(&a->q) == 0) return;
    (void)attention_work_open(&p.work, lane, 0);
    attention_choose_units(&p.work, lane->n);
    attention_run(lane, &p.work);
}

#endif
