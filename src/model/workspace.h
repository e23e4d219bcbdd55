/* SPDX-License-Identifier: MIT
 * The buffers of one step: tensors as large as the largest batch, tables that a recorded step reads
 * anew each time it runs, and the recordings.
 *
 * Tensors are in the device's memory.  Tables are filled by the host and lie in one piece, so that one
 * copy brings them to a device whose memory the host does not reach; elsewhere they are where they were
 * filled. */
#ifndef QUERN_MODEL_WORKSPACE_H
#define QUERN_MODEL_WORKSPACE_H

#include <quern/ops.h>
#include "core/staging.h"
#include "model/config.h"

/* Rows of logits made at once. */
#define QRN_HEAD_ROWS 64

/* What a recording depends on; the same shape is replayed. */
struct qrn_step_shape {
    int64_t n_tokens, n_seqs, max_pages, n_history;
    bool apart;      /* x is whole between layers */
    bool to_logits;  /* all rows become logits, in the same recording */
    bool to_ids;     /* and the likeliest tokens */
    bool from_drawn; /* a token of each sequence, read where the step before has drawn it */
};

/* What changes from step to step.  A shape has its own places for them, one after the other; those of
 * head_rows, which a recording of its own reads, are the same in every shape. */
struct qrn_tables {
    int32_t *head_rows;               /* [QRN_HEAD_ROWS]: rows of x that become logits */
    int32_t *ids, *positions;         /* [n_tokens] */
    int32_t *seq_begin;               /* [n_seqs + 1] */
    int32_t *seq_position;            /* [n_seqs] */
    uint64_t *state, *rows, *history; /* addresses [n_seqs][3], [n_seqs][2], [n_seqs] */
    uint64_t *pages;                  /* addresses [n_seqs][max_pages] */
    int32_t *penalised; /* histories of tokens that are drawn; no recording reads it */
    size_t n_bytes;     /* of all, from head_rows on */
};

/* Tokens drawn from rows of logits. */
struct qrn_drawn {
    int32_t ids[QRN_HEAD_ROWS];
    float probabilities[QRN_HEAD_ROWS]; /* NaN: none to draw; plain draws: the logit (draw.c) */
};

/* A recording of a stage's layers. */
struct qrn_body {
    struct qrn_encoder *encoder;
    struct qrn_step_shape shape; /* what is recorded; n_tokens 0: nothing */
    size_t *layer_end;           /* [n_layers + 1] ops before the layers and after each */
};

struct qrn_workspace {
    struct qrn_device *device;
    int64_t max_tokens;
    bool has_head;  /* and what follows the layers: head_normed, logits, drawn */
    size_t n_bytes; /* of all that is here */

    int64_t n_layers;

    struct qrn_tables filled, tables; /* by the host; as ops read them */
    struct qrn_staging staging;       /* behind filled, and behind tables where the host reads */
    size_t table_bytes; /* of a place for tables, of which staging has two elsewhere */
    /* Steps take turns at places and recordings there, for one may be under way when the next is
     * filled: 0 or 1, of the step that was placed last. */
    int turn;
    bool shares; /* recordings copy tables from staging, and what is drawn to results */
    struct qrn_buffer *table_memory; /* behind tables elsewhere, else NULL */
    struct qrn_staging results;      /* where logits and ids arrive; unused where the host reads */
    struct qrn_drawn *brought;       /* [2] of results: of each turn */

    struct qrn_buffer *memory; /* of the rest */
    /* activations, float32 [max_tokens, ...] */
    float *x, *normed;    /* d_model: the residual stream; its norm */
    void *normed_rounded; /* the norm as products round it */
    float *mixer, *mlp;   /* arenas: a layer's mixer and its mlp use them in turn */
    size_t mixer_floats, mlp_floats;
    float *head_normed, *logits; /* [QRN_HEAD_ROWS, d_model], [QRN_HEAD_ROWS, vocab_size] */
    struct qrn_drawn *drawn;

    struct qrn_body bodies[2]; /* of each turn */
    struct qrn_encoder *head;
    int64_t head_n; /* rows that head holds; 0: nothing */
    struct qrn_allocator allocator;
};

/* What a workspace of that size takes, with the output matrix's part or without it. */
size_t qrn_workspace_bytes(const struct qrn_model_config *config, int64_t max_tokens,
                           bool has_head);

enum qrn_status qrn_workspace_init(struct qrn_workspace *w, const struct qrn_model_config *config,
                                   struct qrn_device *device, int64_t max_tokens, bool has_head,
                                   const struct qrn_host *host, struct qrn_error *err);
void qrn_workspace_free(struct qrn_workspace *w);

/* Places filled and tables for a step of that shape with histories of n_penalised tokens together; more
 * memory for them if need be. */
enum qrn_status qrn_workspace_place_tables(struct qrn_workspace *w, struct qrn_step_shape shape,
                                           int64_t n_penalised, struct qrn_error *err);
/* The recording of the step that was placed last. */
static inline struct qrn_body *qrn_workspace_body(struct qrn_workspace *w)
{
    return &w->bodies[w->turn];
}
/* What it copies by itself, where w->shares: tables, and what is drawn if its last op does that. */
void qrn_workspace_record_copies(struct qrn_workspace *w, bool draws);

/* Brings what was filled to where ops read it: all, without what a recording copies, or head_rows alone.  filled does not
 * change before the device was waited for. */
enum qrn_status qrn_workspace_send_tables(struct qrn_workspace *w, bool is_recorded,
                                          struct qrn_error *err);
enum qrn_status qrn_workspace_send_head_rows(struct qrn_workspace *w, struct qrn_error *err);

/* Of a step whose ids are read where they are drawn, and that has no step before it: the first n of filled. */
enum qrn_status qrn_workspace_send_ids(struct qrn_workspace *w, int64_t n, struct qrn_error *err);

/* Queues a copy of n_bytes from x of a workspace that the host reads, which does not change before the
 * device was waited for. */
enum qrn_status qrn_workspace_take_x(struct qrn_workspace *w, const struct qrn_workspace *from,
                                     size_t n_bytes, struct qrn_error *err);

/* Waits for the device; then *out is the first n_bytes of one of the tensors in memory, for the host to
 * read until the next call. */
enum qrn_status qrn_workspace_fetch(struct qrn_workspace *w, const void *tensor, size_t n_bytes,
                                    const void **out, struct qrn_error *err);
/* The same, into memory of the host. */
enum qrn_status qrn_workspace_read(const struct qrn_workspace *w, const void *tensor, void *out,
                                   size_t n_bytes, struct qrn_error *err);

/* What is drawn, when it is there; is_recorded: a recording draws. */
enum qrn_status qrn_workspace_fetch_drawn(struct qrn_workspace *w, bool is_recorded,
                                          const struct qrn_drawn **out, struct qrn_error *err);
/* The same in two steps, where w->shares: queues its way to the host; and waits for that of a turn, not for what was
 * queued since.  It is there until the next but one is brought. */
enum qrn_status qrn_workspace_bring_drawn(struct qrn_workspace *w, bool is_recorded,
                                          struct qrn_error *err);
enum qrn_status qrn_workspace_take_drawn(struct qrn_workspace *w, int turn,
                                         const struct qrn_drawn **out, struct qrn_error *err);

#endif
