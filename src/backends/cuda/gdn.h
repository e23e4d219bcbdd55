/* SPDX-License-Identifier: MIT
 * What kernels of the gated delta rule make of their arguments. */
#ifndef QUERN_BACKENDS_CUDA_GDN_H
#define QUERN_BACKENDS_CUDA_GDN_H

#include "backends/cuda/gdn_cuda.h"
#include "backends/cuda/gdn_open_chunk_cuda.h"
#include "backends/cuda/rows.h"

/* NULL for a tensor of no elements, which may lie anywhere. */
static inline void *qrn_data_of(const struct qrn_tensor *t)
{
    return qrn_tensor_n_elements(t) ? t->data : NULL;
}

static inline struct qrn_gdn_tensor qrn_gdn_tensor(const struct qrn_tensor *t)
{
    return (struct qrn_gdn_tensor){qrn_data_of(t), t->stride[0], t->stride[1]};
}

static inline struct qrn_ragged qrn_ragged(const struct qrn_tensor *seq_begin, int64_t n_tokens)
{
    if (seq_begin->n_dims == 0) return (struct qrn_ragged){NULL, 1, n_tokens};
    return (struct qrn_ragged){seq_begin->data, seq_begin->shape[0] - 1, n_tokens};
}

static inline struct qrn_gdn_tokens
qrn_gdn_tokens(const struct qrn_tensor *q, const struct qrn_tensor *k, const struct qrn_tensor *v,
               const struct qrn_tensor *g, const struct qrn_tensor *beta,
               const struct qrn_tensor *out, const struct qrn_tensor *seq_begin,
               enum qrn_head_map map)
{
    return (struct qrn_gdn_tokens){.q = qrn_gdn_tensor(q),
                                   .k = qrn_gdn_tensor(k),
                                   .v = qrn_gdn_tensor(v),
                                   .g = qrn_gdn_tensor(g),
                                   .beta = qrn_gdn_tensor(beta),
                                   .out = qrn_data_of(out),
                                   .out_token = out->stride[0],
                                   .out_head = out->stride[1],
                                   .sequences = qrn_ragged(seq_begin, q->shape[0]),
                                   .heads = {q->shape[1], v->shape[1], map == QRN_HEADS_TILED,
                                             q->shape[1] ? (int32_t)(v->shape[1] / q->shape[1]) : 0},
                                   .d_k = q->shape[2],
                                   .d_v = v->shape[2]};
}

/* What kernels of gdn_open_chunk are given; width: columns of a slice of d_v. */
struct qrn_gdn_open_chunk_params
qrn_gdn_open_chunk_params(const struct qrn_gdn_open_chunk_args *args, int64_t width);

/* Whether cuda.gdn_open_chunk.decode cuts heads into slices, which are few; and its blocks then. */
bool qrn_cuda_gdn_is_few(const struct qrn_gdn_open_chunk_args *args, int64_t n_multiprocessors);
struct qrn_cuda_grid qrn_cuda_gdn_few_grid(const struct qrn_gdn_open_chunk_args *args);

/* Queues one of other heads than few; norm: of its out, behind it, with rows in pieces of 16 bytes, or NULL. */
void qrn_cuda_gdn_decode(struct qrn_cuda_stream *s, const struct qrn_gdn_open_chunk_args *args,
                         const struct qrn_rms_norm_args *norm);

/* Of a call of f32 that cuda.gdn_open_chunk.wgmma takes: where in scratch q, k and v of a token are side by side, rounded; and its
 * launches behind those that round.  k of a sequence's last 128 tokens is read as it is, too. */
uint16_t *qrn_cuda_gdn_wgmma_rounded(const struct qrn_cuda_stream *s,
                                     const struct qrn_gdn_open_chunk_args *args);
void qrn_cuda_gdn_wgmma_behind(struct qrn_cuda_stream *s,
                               const struct qrn_gdn_open_chunk_args *args);

/* A head's slice of a sequence each. */
int64_t qrn_gdn_open_n_blocks(const struct qrn_gdn_open_chunk_params *p);
/* Keys and G of all sequences' last chunks join their open rows: every block has read the old by now. */
void qrn_gdn_open_keep(struct qrn_cuda_stream *s, struct qrn_gdn_open_chunk_params *p);

/* cuda.gdn_open_chunk.steps, which takes any sizes of f32. */
void qrn_gdn_open_run_steps(void *stream, const void *args);

#endif
