/* SPDX-License-Identifier: MIT
 * Segments of gdn_open_chunk, runs of tokens of one sequence inside one chunk, and rounds of them: at most one of a sequence,
 * GDN_ROUND_TOKENS tokens. */
#ifndef QUERN_BACKENDS_CPU_GDN_OPEN_ROUNDS_H
#define QUERN_BACKENDS_CPU_GDN_OPEN_ROUNDS_H

#include "backends/cpu/gdn_open_steps.h"

enum { GDN_ROUND_TOKENS = 256 };

struct gdn_open_segment {
    int64_t token, row; /* first token in the call; first row of the round's scratch */
    int n, open;
    const float *state;
    float *next; /* NULL: the chunk stays open */
    struct gdn_rows rows;
};

struct gdn_open_round {
    struct gdn_open_segment segments[GDN_ROUND_TOKENS];
    int64_t n_segments;
    int64_t first, end, wave; /* where the walk stands: sequences, and how many chunks into each */
};

/* Segment number wave of sequence s; false past its last. */
static inline bool gdn_open_segment_at(const struct qrn_gdn_open_chunk_args *a, int64_t s,
                                       int64_t wave, struct gdn_open_segment *out)
{
    const int32_t *seq = a->seq_begin.data;
    const int64_t position = ((const int32_t *)a->position.data)[s];
    const int64_t end = position + seq[s + 1] - seq[s], c = position / GDN_CHUNK + wave;
    const int64_t edge = (c + 1) * GDN_CHUNK, from = wave ? c * GDN_CHUNK : position;
    const int64_t to = end < edge ? end : edge;
    if (from >= to) return false;
    const uint64_t state = gdn_address(&a->state, s, wave ? 1 + (c & 1) : 0) + a->state_offset;
    const uint64_t next = gdn_address(&a->state, s, 1 + ((c + 1) & 1)) + a->state_offset;
    *out = (struct gdn_open_segment){
        .token = seq[s] + from - position,
        .n = (int)(to - from),
        .open = (int)(from % GDN_CHUNK),
        .state = (const float *)(uintptr_t)state,
        .next = to == edge ? (float *)(uintptr_t)next : NULL,
        .rows = gdn_rows_at(gdn_address(&a->rows, s, c & 1) + a->rows_offset, a->q.shape[1],
                            a->v.shape[1], a->q.shape[2]),
    };
    return true;
}

/* Sequences first .. end - 1 go together: their first segments are a round, then their second
 * ... */
static inline void gdn_open_next_group(struct gdn_open_round *r,
                                       const struct qrn_gdn_open_chunk_args *a)
{
    const int32_t *seq = a->seq_begin.data;
    const int64_t n_seqs = a->position.shape[0];
    int64_t tokens = 0;
    r->first = r->end;
    r->wave = 0;
    for (; r->end < n_seqs; r->end++) {
        const int64_t n = seq[r->end + 1] - seq[r->end];
        tokens += n < GDN_CHUNK ? n : GDN_CHUNK;
        if (tokens > GDN_ROUND_TOKENS) break;
    }
}

/* The next round, the same for every lane; false when there is none.  Begins with zeros. */
static inline bool gdn_open_next_round(struct gdn_open_round *r,
                                       const struct qrn_gdn_open_chunk_args *a)
{
    for (;;) {
        int64_t row = 0;
        r->n_segments = 0;
        for (int64_t s = r->first; s < r->end; s++) {
            struct gdn_open_segment *g = &r->segments[r->n_segments];
            if (!gdn_open_segment_at(a, s, r->wave, g)) continue;
            g->row = row;
            row += g->n;
            r->n_segments++;
        }
        r->wave++;
        if (r->n_segments) return true;
        if (r->end == a->position.shape[0]) return false;
        gdn_open_next_group(r, a);
    }
}

#endif
