/* SPDX-License-Identifier: MIT
 * The steps of loading that all formats share: find a tensor, take rows, change a vector, prepare a
 * matrix for the device.
 *
 * A format's walk over its tensors is done twice.  The first time measures: everything is checked,
 * and what will be needed is added up.  Then memory is taken once, and the second time fills it. */
#ifndef QUERN_MODEL_LOAD_H
#define QUERN_MODEL_LOAD_H

#include "model/upload.h"
#include "model/weights.h"

/* Memory of a stage's device for weights. */
struct load_room {
    char *memory; /* what the second walk fills; NULL: this is the first */
    size_t used;  /* of it, or to come */
};

struct loader {
    const struct qrn_model_files *files;
    const struct qrn_model_config *config;
    const struct qrn_load_options *options;
    const struct qrn_allocator *allocator;
    struct qrn_weights *weights;
    struct load_room rooms[QRN_MAX_STAGES];
    const struct qrn_stage *stage;  /* that the next weights are for, */
    struct load_room *room;         /* its room, */
    bool host_reads;                /* and whether the host reads and writes it; elsewhere: */
    struct qrn_upload upload;       /* in the second walk */
    char prefix[64];                /* of tensor names: "model.language_model." */
    bool raw_hf;                    /* norms hold w for 1 + w, A_log is a logarithm */
    size_t bytes_done, bytes_total; /* of the files, for progress */
    struct qrn_error *err;
};

/* Rows first .. first + n - 1 of a tensor whose leading dimensions count as rows. */
struct row_run {
    const struct qrn_archive_tensor *tensor, *scales, *biases; /* the last two: of MLX codes */
    int64_t first, n;
};

enum change { AS_IS, PLUS_ONE, MINUS_EXP };
enum matrix_use { BIG, SMALL }; /* SMALL: gates and routers, with float32 activations */

static inline int64_t qrn_load_elements(const struct qrn_archive_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->n_dims; i++) n *= t->shape[i];
    return n;
}

static inline int64_t qrn_load_columns(const struct qrn_archive_tensor *t)
{
    return t->n_dims ? t->shape[t->n_dims - 1] : 1;
}

static inline int64_t qrn_load_rows_of(const struct qrn_archive_tensor *t)
{
    const int64_t k = qrn_load_columns(t);
    return k ? qrn_load_elements(t) / k : 0;
}

/* What is loaded next is for this stage. */
void qrn_load_enter(struct loader *ld, int i_stage);
/* The same by a layer; after the last one, what else the last stage has. */
void qrn_load_enter_layer(struct loader *ld, int64_t i_layer);

/* The next n_bytes of the stage's memory for weights; NULL while measuring. */
void *qrn_load_take(struct loader *ld, size_t n_bytes);
/* n_bytes of the files are done: tells the user.  Errors: QRN_ERR_CANCELLED. */
enum qrn_status qrn_load_advance(struct loader *ld, size_t n_bytes);

/* The tensor, or NULL. */
const struct qrn_archive_tensor *qrn_load_find(struct loader *ld, const char *name);
/* QRN_ERR_FORMAT, "tensor X is missing". */
enum qrn_status qrn_load_need(struct loader *ld, const char *name,
                              const struct qrn_archive_tensor **out);

/* All rows of the tensor named (a module's ".weight"), with MLX scales where it has them. */
enum qrn_status qrn_load_run(struct loader *ld, const char *name, struct row_run *out);

/* A float32 vector of n elements, changed. */
enum qrn_status qrn_load_vector(struct loader *ld, const char *name, int64_t n, enum change change,
                                struct qrn_tensor *out);

/* The rows of all runs, one after the other, as a matrix [n_out, n_in], or with n_experts > 0 as
 * [n_experts, n_out, n_in]; packed if the device has a packed form, unless rows are wanted. */
enum qrn_status qrn_load_matrix(struct loader *ld, const struct row_run *runs, size_t n_runs,
                                int64_t n_experts, int64_t n_out, int64_t n_in, enum matrix_use use,
                                struct qrn_matrix *out);
/* For an embedding, which is the first stage's: as it is packed in tied (or NULL), which holds the same
 * numbers and has been loaded for the last stage, if that is the same and rows can be taken from it; else
 * as rows.  What is loaded next is for the last stage. */
enum qrn_status qrn_load_embedding(struct loader *ld, const struct row_run *run,
                                   const struct qrn_matrix *tied, int64_t n_out, int64_t n_in,
                                   struct qrn_matrix *out);
/* One tensor as a matrix. */
enum qrn_status qrn_load_named_matrix(struct loader *ld, const char *name, int64_t n_out,
                                      int64_t n_in, enum matrix_use use, struct qrn_matrix *out);

/* Per format. */
enum qrn_status qrn_load_hf(struct loader *ld);
enum qrn_status qrn_load_gguf(struct loader *ld);

/* A layer's vectors and matrices that have one tensor each, by rules (load_rules.c). */
enum qrn_status qrn_load_layer_by_rules(struct loader *ld, int64_t i_layer,
                                        struct qrn_layer_weights *l);

#define LOAD_NAME_BYTES 192

#endif
