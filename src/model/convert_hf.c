/* SPDX-License-Identifier: MIT
 * The GGUF tensors of a directory of safetensors, as Hugging Face or MLX name and order them. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "base/error.h"
#include "formats/blocks.h"
#include "model/config_mlx.h"
#include "model/convert_hf.h"

static int64_t n_elements(const struct qrn_archive_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->n_dims; i++) n *= t->shape[i];
    return n;
}

void qrn_hf_layer_name(const struct qrn_hf_list *l, const char *suffix, char name[QRN_HF_NAME])
{
    (void)snprintf(name, QRN_HF_NAME, "%slayers.%" PRId64 ".%s", l->prefix, l->i_layer, suffix);
}

bool qrn_hf_has(const struct qrn_hf_list *l, const char *suffix)
{
    char name[QRN_HF_NAME];
    qrn_hf_layer_name(l, suffix, name);
    return qrn_archive_find(l->files->archive, name) != NULL;
}

/* "x.weight" -> "x.scales" */
static const struct qrn_archive_tensor *sibling(const struct qrn_hf_list *l, const char *name,
                                                const char *suffix)
{
    static const char weight[] = ".weight";
    char other[QRN_HF_NAME + 16];
    const size_t n = strlen(name), n_weight = sizeof weight - 1;
    if (n < n_weight || strcmp(name + n - n_weight, weight) != 0) return NULL;
    (void)snprintf(other, sizeof other, "%.*s%s", (int)(n - n_weight), name, suffix);
    return qrn_archive_find(l->files->archive, other);
}

/* Codes of n_rows rows with a scale and a bias for each group. */
static enum qrn_status take_mlx(const struct qrn_hf_list *l, int64_t n_rows, int64_t n_cols,
                                struct qrn_row_run *run)
{
    const struct qrn_archive_tensor *t = run->tensor;
    if (!run->biases)
        return qrn_fail(l->err, QRN_ERR_UNSUPPORTED,
                        "tensor \"%s\" has scales but no biases: not an affine quantisation",
                        t->name);
    const int64_t n_words = n_elements(t), n_groups = n_elements(run->scales);
    run->dtype = n_words % n_rows ? QRN_DTYPE_COUNT : qrn_mlx_type(n_words / n_rows, n_cols);
    if (t->dtype != QRN_U32 || run->dtype == QRN_DTYPE_COUNT)
        return qrn_fail(l->err, QRN_ERR_FORMAT,
                        "tensor \"%s\" has %" PRId64
                        " elements of type %s, which are no codes of %" PRId64 " rows of %" PRId64
                        " values",
                        t->name, n_words, t->type_name, n_rows, n_cols);
    if (n_groups < n_rows || n_groups % n_rows || n_cols % (n_groups / n_rows) ||
        n_elements(run->biases) != n_groups || !qrn_decoder(run->scales->dtype) ||
        !qrn_decoder(run->biases->dtype))
        return qrn_fail(l->err, QRN_ERR_FORMAT, "scales or biases do not fit tensor \"%s\"",
                        t->name);
    run->group = n_cols / (n_groups / n_rows);
    return QRN_OK;
}

enum qrn_status qrn_hf_rows_of(const struct qrn_hf_list *l, const char *name, int64_t n_rows,
                               int64_t n_cols, struct qrn_row_run *out)
{
    struct qrn_row_run run = {
        .tensor = qrn_archive_find(l->files->archive, name), .n_cols = n_cols, .n = n_rows};
    if (!run.tensor) return qrn_fail(l->err, QRN_ERR_FORMAT, "tensor \"%s\" is missing", name);
    run.dtype = run.tensor->dtype;
    run.scales = sibling(l, name, ".scales");
    if (run.scales) {
        run.biases = sibling(l, name, ".biases");
        QRN_TRY(take_mlx(l, n_rows, n_cols, &run));
    } else if (run.dtype == QRN_DTYPE_COUNT || !qrn_decoder(run.dtype)) {
        return qrn_fail(l->err, QRN_ERR_UNSUPPORTED,
                        "tensor \"%s\" is of type %s, which has no decoder", name,
                        run.tensor->type_name);
    } else if (n_elements(run.tensor) != n_rows * n_cols) {
        return qrn_fail(l->err, QRN_ERR_FORMAT,
                        "tensor \"%s\" has %" PRId64 " elements, wants %" PRId64 " x %" PRId64,
                        name, n_elements(run.tensor), n_rows, n_cols);
    }
    if (!qrn_row_bytes(run.dtype, n_cols, &run.row_bytes))
        return qrn_fail(l->err, QRN_ERR_FORMAT,
                        "tensor \"%s\": rows of %" PRId64 " are no whole blocks", name, n_cols);
    *out = run;
    return QRN_OK;
}

enum qrn_status qrn_hf_rows(const struct qrn_hf_list *l, const char *suffix, int64_t n_rows,
                            int64_t n_cols, struct qrn_row_run *out)
{
    char name[QRN_HF_NAME];
    qrn_hf_layer_name(l, suffix, name);
    return qrn_hf_rows_of(l, name, n_rows, n_cols, out);
}

enum qrn_status qrn_hf_begin(const struct qrn_hf_list *l, const char *gguf, int n_dims,
                             const int64_t *shape, enum qrn_convert_change change)
{
    char name[QRN_CONVERT_NAME];
    (void)snprintf(name, sizeof name, "blk.%" PRId64 ".%s", l->i_layer, gguf);
    return qrn_convert_add(l->list, name, n_dims, shape, change, l->err);
}

int64_t qrn_hf_old_head(const struct qrn_model_config *c, int64_t i)
{
    const int64_t n = c->n_k_heads, r = c->n_v_heads / n;
    return c->architecture == QRN_QWEN3NEXT ? i : i % n * r + i / n;
}

static enum qrn_status find_prefix(struct qrn_hf_list *l)
{
    static const char *const prefixes[] = {"model.language_model.", "language_model.model.",
                                           "model."};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        char name[QRN_HF_NAME];
        (void)snprintf(name, sizeof name, "%sembed_tokens.weight", prefixes[i]);
        if (!qrn_archive_find(l->files->archive, name)) continue;
        l->prefix = prefixes[i];
        return QRN_OK;
    }
    return qrn_fail(l->err, QRN_ERR_FORMAT,
                    "there is no tensor \"embed_tokens.weight\" under \"model.\", "
                    "\"model.language_model.\" or \"language_model.model.\"");
}

/* MLX turns conv1d.weight [C, 1, K] into [C, K, 1], and adds the one to the norms then. */
static bool is_raw(struct qrn_hf_list *l)
{
    const struct qrn_model_config *c = &l->files->config;
    for (l->i_layer = 0; l->i_layer < c->n_layers; l->i_layer++) {
        char name[QRN_HF_NAME];
        if (!c->layer_is_linear[l->i_layer]) continue;
        qrn_hf_layer_name(l, "linear_attn.conv1d.weight", name);
        const struct qrn_archive_tensor *t = qrn_archive_find(l->files->archive, name);
        return !t || t->n_dims < 1 || t->shape[t->n_dims - 1] != 1 || c->conv_kernel == 1;
    }
    return l->files->format != QRN_FORMAT_MLX;
}

/* A tensor outside the layers, of n_dims 1 or 2. */
static enum qrn_status list_end(const struct qrn_hf_list *l, const char *name, const char *gguf,
                                int64_t n_rows, int64_t n_cols, int n_dims,
                                enum qrn_convert_change change)
{
    const int64_t shape[2] = {n_rows, n_cols};
    struct qrn_row_run run;
    QRN_TRY(qrn_hf_rows_of(l, name, n_rows, n_cols, &run));
    QRN_TRY(qrn_convert_add(l->list, gguf, n_dims, shape + 2 - n_dims, change, l->err));
    return qrn_convert_add_rows(l->list, &run, 0, n_rows, l->err);
}

static enum qrn_status list_ends(const struct qrn_hf_list *l)
{
    const struct qrn_model_config *c = &l->files->config;
    char name[QRN_HF_NAME];
    (void)snprintf(name, sizeof name, "%sembed_tokens.weight", l->prefix);
    QRN_TRY(list_end(l, name, "token_embd.weight", c->vocab_size, c->d_model, 2, QRN_AS_IS));
    (void)snprintf(name, sizeof name, "%snorm.weight", l->prefix);
    QRN_TRY(list_end(l, name, "output_norm.weight", 1, c->d_model, 1,
                     l->is_raw ? QRN_PLUS_ONE : QRN_AS_IS));
    if (c->tied_embeddings) return QRN_OK;
    const char *head = "language_model.lm_head.weight";
    if (!qrn_archive_find(l->files->archive, head)) head = "lm_head.weight";
    return list_end(l, head, "output.weight", c->vocab_size, c->d_model, 2, QRN_AS_IS);
}

enum qrn_status qrn_convert_list_hf(const struct qrn_model_files *files, struct qrn_convert *list,
                                    struct qrn_error *err)
{
    struct qrn_hf_list l = {.files = files, .list = list, .err = err};
    if (files->config.quant == QRN_QUANT_FP8)
        return qrn_fail(err, QRN_ERR_UNSUPPORTED,
                        "weights of FP8 with scales by tiles cannot be read");
    QRN_TRY(find_prefix(&l));
    l.is_raw = is_raw(&l);
    QRN_TRY(list_ends(&l));
    for (l.i_layer = 0; l.i_layer < files->config.n_layers; l.i_layer++)
        QRN_TRY(qrn_hf_list_layer(&l));
    return QRN_OK;
}
