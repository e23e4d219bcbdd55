/* SPDX-License-Identifier: MIT
 * The buffers of one step: tensors as large as the largest batch, tables that a recorded step reads
 * anew each time it runs, and the recordings. */
#ifndef QUERN_MODEL_WORKSPACE_H
#define QUERN_MODEL_WORKSPACE_H

#include <quern/ops.h>
#include "model/config.h"

/* Rows of logits made at once. */
#define QRN_HEAD_ROWS 64

/* What a recording depends on; the same shape is replayed. */
struct qrn_step_shape {
    int64_t n_tokens, n_seqs, max_pages, n_history;
    bool apart; /* x is whole between layers */
};

struct qrn_workspace {
    int64_t max_tokens, max_pages; /* capacity; of the page table for each sequence of a batch */
    char *memory;                  /* everything below */
    size_t n_bytes;

    struct qrn_part *parts; /* [max_tokens] of the batch */

    /* tables */
    int32_t *ids, *positions;         /* [max_tokens] */
    int32_t *seq_begin;               /* [max_tokens + 1] */
    int32_t *seq_position;            /* [max_tokens] */
    uint64_t *state, *rows, *history; /* addresses [max_tokens][3], [max_tokens][2], [max_tokens] */
    uint64_t *pages;                  /* addresses [n_seqs][shape.max_pages]; grown as needed */
    size_t n_pages;
    int32_t *head_rows; /* [QRN_HEAD_ROWS]: rows of x that become logits */

    /* activations, float32 [max_tokens, ...] */
    float *x, *normed;    /* d_model: the residual stream; its norm */
    void *normed_rounded; /* the norm as products round it */
    float *mixer, *mlp;   /* arenas: a layer's mixer and its mlp use them in turn */
    size_t mixer_floats, mlp_floats;
    float *head_normed, *logits; /* [QRN_HEAD_ROWS, d_model], [QRN_HEAD_ROWS, vocab_size] */

    struct qrn_encoder *body, *head;
    struct qrn_step_shape body_shape; /* what body holds; n_tokens 0: nothing */
    int64_t head_n;                   /* rows that head holds; 0: nothing */
    size_t *layer_end; /* [n_layers + 1] ops recorded after the embedding and each layer */
    struct qrn_allocator allocator;
};

/* What a workspace of that size takes. */
size_t qrn_workspace_bytes(const struct qrn_model_config *config, int64_t max_tokens);

enum qrn_status qrn_workspace_init(struct qrn_workspace *w, const struct qrn_model_config *config,
                                   struct qrn_device *device, int64_t max_tokens,
                                   const struct qrn_host *host, struct qrn_error *err);
void qrn_workspace_free(struct qrn_workspace *w);

/* Room for n addresses of pages. */
enum qrn_status qrn_workspace_reserve_pages(struct qrn_workspace *w, size_t n,
                                            struct qrn_error *err);

#endif
