/* SPDX-License-Identifier: MIT
 * What the two files that list a directory's tensors share. */
#ifndef QUERN_MODEL_CONVERT_HF_H
#define QUERN_MODEL_CONVERT_HF_H

#include "model/convert.h"

#define QRN_HF_NAME 192

struct qrn_hf_list {
    const struct qrn_model_files *files;
    struct qrn_convert *list;
    const char *prefix; /* of tensor names: "model.language_model." */
    bool is_raw;        /* norms hold w for 1 + w */
    int64_t i_layer;
    struct qrn_error *err;
};

/* "model.layers.3.<suffix>" */
void qrn_hf_layer_name(const struct qrn_hf_list *l, const char *suffix, char name[QRN_HF_NAME]);
bool qrn_hf_has(const struct qrn_hf_list *l, const char *suffix);

/* The tensor of that name as n_rows rows of n_cols values, with MLX scales where it has them;
 * n_rows and n_cols at least 1.  Errors: QRN_ERR_FORMAT, QRN_ERR_UNSUPPORTED. */
enum qrn_status qrn_hf_rows_of(const struct qrn_hf_list *l, const char *name, int64_t n_rows,
                               int64_t n_cols, struct qrn_row_run *out);
/* The same by its name in the layer. */
enum qrn_status qrn_hf_rows(const struct qrn_hf_list *l, const char *suffix, int64_t n_rows,
                            int64_t n_cols, struct qrn_row_run *out);

/* Begins the layer's tensor "blk.3.<gguf>". */
enum qrn_status qrn_hf_begin(const struct qrn_hf_list *l, const char *gguf, int n_dims,
                             const int64_t *shape, enum qrn_convert_change change);

/* The value head that stands at place i of a GGUF file.  Directories have the heads of a key head
 * together; GGUF of qwen35 and qwen35moe has the first of each, then the second of each. */
int64_t qrn_hf_old_head(const struct qrn_model_config *c, int64_t i);

/* Adds the tensors of layer i_layer. */
enum qrn_status qrn_hf_list_layer(const struct qrn_hf_list *l);

#endif
