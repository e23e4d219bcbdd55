/* SPDX-License-Identifier: MIT
 * A model as the list of tensors that its GGUF file has, each made of rows of the tensors that the
 * model's own files have; and how that list becomes a file. */
#ifndef QUERN_MODEL_CONVERT_H
#define QUERN_MODEL_CONVERT_H

#include "formats/gguf.h"
#include "formats/recipe.h"
#include "model/files.h"

#define QRN_CONVERT_NAME 64 /* with the NUL: GGUF's limit */

/* Rows first .. first + n - 1 of a tensor seen as rows of one length. */
struct qrn_row_run {
    const struct qrn_archive_tensor *tensor;
    const struct qrn_archive_tensor *scales, *biases; /* of MLX codes, else NULL */
    enum qrn_dtype dtype; /* the tensor's, or the codes' */
    int64_t group;        /* of MLX codes: values that share a scale */
    int64_t n_cols;       /* values of a row */
    size_t row_bytes;
    int64_t first, n;
    int64_t at; /* row of the output where the run begins */
};

enum qrn_convert_change { QRN_AS_IS, QRN_PLUS_ONE, QRN_MINUS_EXP };

/* A tensor of the GGUF file. */
struct qrn_convert_tensor {
    char name[QRN_CONVERT_NAME];
    int n_dims;
    int64_t shape[QRN_ARCHIVE_MAX_DIMS]; /* outermost first */
    enum qrn_dtype dtype;                /* set by qrn_convert_plan */
    bool is_copy;                        /* bytes are taken as they are; set by qrn_convert_plan */
    enum qrn_convert_change change;
    int64_t head_columns;   /* not 0: value heads of so many columns change to tiled order */
    int64_t n_rows, n_cols; /* of the runs: n_rows * n_cols values */
    size_t first_run, n_runs; /* in the list's runs */
};

struct qrn_convert {
    struct qrn_convert_tensor *tensors; /* in the order of the file, once planned */
    size_t n_tensors, n_tensors_reserved;
    struct qrn_row_run *runs;
    size_t n_runs, n_runs_reserved;
    int64_t n_k_heads, n_v_heads; /* of head_columns */
    struct qrn_allocator allocator;
};

/* The list for a model; files must stay open.  Free it also after a failure.
 * Errors: QRN_ERR_FORMAT (a tensor is missing or has another size), QRN_ERR_UNSUPPORTED,
 * QRN_ERR_MEMORY. */
enum qrn_status qrn_convert_list(const struct qrn_model_files *files, const struct qrn_host *host,
                                 struct qrn_convert *list, struct qrn_error *err);
void qrn_convert_free(struct qrn_convert *list); /* zeroed structs are allowed */

/* Decides types and order.  Errors: as qrn_recipe_plan, QRN_ERR_UNSUPPORTED (a type that cannot be
 * decoded), QRN_ERR_MEMORY. */
enum qrn_status qrn_convert_plan(struct qrn_convert *list, const struct qrn_model_files *files,
                                 const struct qrn_recipe_target *target, bool pure,
                                 struct qrn_error *err);

/* Writes the metadata: what a GGUF file says, or what config.json, the tokenizer and the chat
 * template of a directory say.  options: as the files were opened with. */
enum qrn_status qrn_convert_metadata(const struct qrn_model_files *files,
                                     const struct qrn_model_options *options,
                                     const struct qrn_recipe_target *target,
                                     struct qrn_gguf_writer *w, struct qrn_error *err);
/* The tokenizer's and the template's part of it. */
enum qrn_status qrn_convert_text(const struct qrn_tokenizer *tokenizer,
                                 const struct qrn_model_config *config,
                                 const struct qrn_model_options *options, struct qrn_gguf_writer *w,
                                 struct qrn_error *err);
/* Of a directory that gave no tokenizer: QRN_ERR_UNSUPPORTED, and why, if it has one after all. */
enum qrn_status qrn_convert_no_text(const struct qrn_model_options *options, struct qrn_error *err);

/* Announces all tensors and writes their bytes, encoding on all cores.  progress as in struct
 * qrn_quantize_options.  What the writer met shows when it is finished.  Errors: QRN_ERR_MEMORY,
 * QRN_ERR_CANCELLED. */
enum qrn_status qrn_convert_write(const struct qrn_convert *list, qrn_progress_fn progress,
                                  void *progress_user, struct qrn_gguf_writer *w,
                                  struct qrn_error *err);

/* --- for the makers of lists --- */

/* Begins a tensor whose rows come with qrn_convert_add_rows. */
enum qrn_status qrn_convert_add(struct qrn_convert *list, const char *name, int n_dims,
                                const int64_t *shape, enum qrn_convert_change change,
                                struct qrn_error *err);
/* Appends rows first .. first + n - 1 of whole to the tensor begun last. */
enum qrn_status qrn_convert_add_rows(struct qrn_convert *list, const struct qrn_row_run *whole,
                                     int64_t first, int64_t n, struct qrn_error *err);
/* The list of a directory in the layout of Hugging Face or MLX. */
enum qrn_status qrn_convert_list_hf(const struct qrn_model_files *files, struct qrn_convert *list,
                                    struct qrn_error *err);

#endif
