/* SPDX-License-Identifier: MIT
 * What a lane reads from memory for a token alone, in order: of each key head the open keys, then of
 * each of its value heads S0 and the open u; the token's own key and u too, which it writes.
 *
 * Steps ask for as much as they read, GDN_READS_AHEAD further on.  Heads are short, and where one ends a
 * processor that follows addresses by itself begins anew: one core of a Zen 5 takes 10 to
 * 20 % less with 16 open rows and more.  6 KB ahead gain two thirds of that, 16 KB no more.
 *
 * Lines come to the first cache, which has few requests at a time, or where `far` is set to the second one: a
 * Zen 4 takes 10 to 20 % less so, since what it loads does not wait behind them. */
#ifndef QUERN_BACKENDS_CPU_GDN_OPEN_READS_H
#define QUERN_BACKENDS_CPU_GDN_OPEN_READS_H

#include "base/cpu_features.h"
#include "core/gdn_layout.h"

enum { GDN_READS_AHEAD = 3072 }; /* floats */

enum gdn_open_row { GDN_ROW_KEYS, GDN_ROW_STATE, GDN_ROW_U };

struct gdn_open_reads {
    const struct qrn_gdn_open_chunk_args *a;
    struct gdn_rows rows;
    const float *state;
    int64_t n_rows;     /* open ones and the token's own */
    int64_t kh, end, h; /* heads of what comes next; key heads end there */
    enum gdn_open_row next;
    const float *at; /* what is asked for: so many floats are left of it */
    int64_t left;
    bool far; /* to the second cache */
};

/* Of a processor with these features. */
static inline bool gdn_open_asks_far(uint64_t features)
{
    return (features & QRN_CPU_STREAMS) && !(features & QRN_CPU_DEEP_STREAMS);
}

/* The next key head, or value head of the same one, from h on. */
static inline void gdn_open_reads_next_head(struct gdn_open_reads *r)
{
    const int64_t n_k_heads = r->a->q.shape[1], n_v_heads = r->a->v.shape[1];
    while (r->h < n_v_heads && gdn_key_head(r->a->head_map, r->h, n_k_heads, n_v_heads) != r->kh)
        r->h++;
    if (r->h < n_v_heads) {
        r->next = GDN_ROW_STATE;
        return;
    }
    r->next = GDN_ROW_KEYS;
    r->kh++;
    r->h = 0;
}

/* What comes next begins; false where nothing does. */
static inline bool gdn_open_reads_begin(struct gdn_open_reads *r)
{
    const int64_t d_k = r->a->q.shape[2], d_v = r->a->v.shape[2];
    switch (r->next) {
    case GDN_ROW_KEYS:
        if (r->kh == r->end) return false;
        r->at = r->rows.k + r->kh * QRN_GDN_CHUNK * d_k;
        r->left = r->n_rows * d_k;
        gdn_open_reads_next_head(r);
        return true;
    case GDN_ROW_STATE:
        r->at = r->state + r->h * d_k * d_v;
        r->left = d_k * d_v;
        r->next = GDN_ROW_U;
        return true;
    case GDN_ROW_U:
        r->at = r->rows.u + r->h * QRN_GDN_CHUNK * d_v;
        r->left = r->n_rows * d_v;
        r->h++;
        gdn_open_reads_next_head(r);
        return true;
    }
    return false;
}

/* Not inlined: what a loop has in registers stays there where nothing ends. */
static __attribute__((noinline)) void gdn_open_ask_across(struct gdn_open_reads *r, int64_t n)
{
    for (; n > 0; n -= 16, r->at += 16, r->left -= 16) {
        while (r->left <= 0)
            if (!gdn_open_reads_begin(r)) return;
        if (r->far)
            __builtin_prefetch(r->at, 0, 2);
        else
            __builtin_prefetch(r->at);
    }
}

/* Asks for the next n floats, by lines. */
static inline __attribute__((always_inline)) void gdn_open_ask(struct gdn_open_reads *r, int64_t n)
{
    if (r->left < n) {
        gdn_open_ask_across(r, n);
        return;
    }
    if (r->far)
        for (int64_t i = 0; i < n; i += 16) __builtin_prefetch(r->at + i, 0, 2);
    else
        for (int64_t i = 0; i < n; i += 16) __builtin_prefetch(r->at + i);
    r->at += n;
    r->left -= n;
}

#endif
