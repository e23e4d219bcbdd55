/* SPDX-License-Identifier: MIT
 * Where things lie in the memory behind gdn_open_chunk's addresses, and which rows are touched. */
#ifndef QUERN_CORE_GDN_LAYOUT_H
#define QUERN_CORE_GDN_LAYOUT_H

#include <quern/ops.h>

/* Open rows of one chunk: G double [n_v_heads][64], k float [n_k_heads][64][d_k],
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

/* Tokens begin .. begin + n - 1 of one sequence: chunk number i of the call. */
struct gdn_chunk {
    int64_t begin, n;
};

static inline struct gdn_chunk gdn_chunk_at(const struct qrn_tensor *seq_begin, int64_t n_tokens,
                                            int64_t i)
{
    for (int64_t s = 0;; s++) {
        const int64_t begin = gdn_seq_begin(seq_begin, n_tokens, s);
        const int64_t n = gdn_seq_begin(seq_begin, n_tokens, s + 1) - begin;
        const int64_t n_chunks = (n + QRN_GDN_CHUNK - 1) / QRN_GDN_CHUNK;
        if (i < n_chunks) {
            const int64_t left = n - i * QRN_GDN_CHUNK;
            return (struct gdn_chunk){begin + i * QRN_GDN_CHUNK,
                                      left < QRN_GDN_CHUNK ? left : QRN_GDN_CHUNK};
        }
        i -= n_chunks;
    }
}

/* Chunks of the sequences before s; of all when s is n_seqs. */
static inline int64_t gdn_chunks_before(const struct qrn_tensor *seq_begin, int64_t n_tokens,
                                        int64_t s)
{
    const int32_t *begin = qrn_tensor_present(seq_begin) ? seq_begin->data : NULL;
    return qrn_gdn_n_chunks(begin, s, n_tokens * (s > 0));
}

static inline int64_t gdn_n_seqs(const struct qrn_tensor *seq_begin)
{
    return qrn_tensor_present(seq_begin) ? seq_begin->shape[0] - 1 : 1;
}

static inline int64_t gdn_key_head(enum qrn_head_map map, int64_t h, int64_t n_k_heads,
                                   int64_t n_v_heads)
{
    return map == QRN_HEADS_TILED ? h % n_k_heads : h / (n_v_heads / n_k_heads);
}

#endif
