/* SPDX-License-Identifier: MIT
 * Where things lie in the memory behind gdn_open_chunk's addresses, and which rows are touched. */
#ifndef QUERN_CORE_GDN_LAYOUT_H
#define QUERN_CORE_GDN_LAYOUT_H

#include <quern/ops.h>

/* Open rows of one chunk: G double [n_v_heads][64], k float [n_k_heads][d_k][64],
 * u float [n_v_heads][64][d_v]. */
struct gdn_rows {
    double *G;
    float *k, *u;
};

static inline struct gdn_rows gdn_rows_at(uint64_t address, int64_t n_k_heads, int64_t n_v_heads,
                                          int64_t d_k)
{
    struct gdn_rows r;
    r.G = (double *)(uintptr_t)address;
    r.k = (float *)(void *)(r.G + n_v_heads * QRN_GDN_CHUNK);
    r.u = r.k + n_k_heads * d_k * QRN_GDN_CHUNK;
    return r;
}

/* Entry [s][i] of a table of addresses, 1- or 2-dimensional. */
static inline uint64_t gdn_address(const struct qrn_tensor *t, int64_t s, int64_t i)
{
    return ((const uint64_t *)t->data)[s * t->stride[0] + i];
}

/* First token of sequence s (of sequence n_seqs: the end); seq_begin may be absent. */
static inline int64_t gdn_seq_begin(const struct qrn_tensor *seq_begin, int64_t n_tokens, int64_t s)
{
    if (qrn_tensor_present(seq_begin)) return ((const int32_t *)seq_begin->data)[s];
    return s ? n_tokens : 0;
}

static inline int64_t gdn_key_head(enum qrn_head_map map, int64_t h, int64_t n_k_heads,
                                   int64_t n_v_heads)
{
    return map == QRN_HEADS_TILED ? h % n_k_heads : h / (n_v_heads / n_k_heads);
}

#endif
