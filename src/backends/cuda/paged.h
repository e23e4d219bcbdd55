/* SPDX-License-Identifier: MIT
 * Sequences in pages made ready for device code. */
#ifndef QUERN_BACKENDS_CUDA_PAGED_H
#define QUERN_BACKENDS_CUDA_PAGED_H

#include "backends/cuda/kv_append_cuda.h"
#include "core/op.h"

static inline struct qrn_paged qrn_paged_of(const struct qrn_tensor *seq_begin,
                                            const struct qrn_tensor *position,
                                            const struct qrn_tensor *pages, int64_t n_tokens,
                                            int64_t n_kv_heads, int64_t head_dim,
                                            int64_t page_offset)
{
    return (struct qrn_paged){.seq_begin = seq_begin->data,
                              .position = position->data,
                              .pages = pages->data,
                              .pages_stride = pages->stride[0],
                              .max_pages = pages->shape[1],
                              .n_seqs = position->shape[0],
                              .n_tokens = n_tokens,
                              .n_kv_heads = n_kv_heads,
                              .head_dim = head_dim,
                              .page_offset = page_offset};
}

#endif
