/* SPDX-License-Identifier: MIT
 * The list of a GGUF file's tensors: growing it, and deciding their types. */
#include "model/convert.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/memory.h"
#include "formats/blocks.h"
#include "base/quote.h"

/* Makes room for one more element of an array that doubles. */
static enum qrn_status grow(struct qrn_convert *list, void **array, size_t n, size_t *n_reserved,
                            size_t element, struct qrn_error *err)
{
    if (n < *n_reserved) return QRN_OK;
    const size_t want = *n_reserved * 2 + 64;
    void *bigger = qrn_realloc(&list->allocator, *array, *n_reserved * element, want * element);
    if (!bigger) return qrn_fail_memory(err, want * element, "the list of tensors");
    *array = bigger;
    *n_reserved = want;
    return QRN_OK;
}

enum qrn_status qrn_convert_add(struct qrn_convert *list, const char *name, int n_dims,
                                const int64_t *shape, enum qrn_convert_change change,
                                struct qrn_error *err)
{
    const size_t n_name = strlen(name);
    if (n_name >= QRN_CONVERT_NAME)
        return qrn_fail(err, QRN_ERR_FORMAT, "tensor %s: the name has %zu bytes, the limit is %d",
                        qrn_quote(name, n_name).text, n_name, QRN_CONVERT_NAME - 1);
    void *tensors = list->tensors;
    QRN_TRY(grow(list, &tensors, list->n_tensors, &list->n_tensors_reserved, sizeof *list->tensors,
                 err));
    list->tensors = tensors;
    struct qrn_convert_tensor *t = &list->tensors[list->n_tensors++];
    *t = (struct qrn_convert_tensor){.n_dims = n_dims, .change = change, .first_run = list->n_runs};
    memcpy(t->name, name, n_name + 1);
    if (n_dims) memcpy(t->shape, shape, sizeof *shape * (size_t)n_dims);
    return QRN_OK;
}

enum qrn_status qrn_convert_add_rows(struct qrn_convert *list, const struct qrn_row_run *whole,
                                     int64_t first, int64_t n, struct qrn_error *err)
{
    struct qrn_convert_tensor *t = &list->tensors[list->n_tensors - 1];
    struct qrn_row_run *last = t->n_runs ? &list->runs[list->n_runs - 1] : NULL;
    if (last && last->tensor == whole->tensor && last->first + last->n == first) {
        last->n += n;
    } else {
        void *runs = list->runs;
        QRN_TRY(grow(list, &runs, list->n_runs, &list->n_runs_reserved, sizeof *list->runs, err));
        list->runs = runs;
        struct qrn_row_run *run = &list->runs[list->n_runs++];
        *run = *whole;
        run->first = first;
        run->n = n;
        run->at = t->n_rows;
        t->n_runs++;
    }
    t->n_rows += n;
    t->n_cols = whole->n_cols;
    return QRN_OK;
}

/* Every tensor under its own name, as it is. */
static enum qrn_status list_gguf(const struct qrn_model_files *files, struct qrn_convert *list,
                                 struct qrn_error *err)
{
    static const char scale[] = ".scale";
    for (size_t i = 0; i < files->archive->n_tensors; i++) {
        const struct qrn_archive_tensor *t = &files->archive->tensors[i];
        const size_t n_name = strlen(t->name), n_scale = sizeof scale - 1;
        if (n_name > n_scale && strcmp(t->name + n_name - n_scale, scale) == 0)
            return qrn_fail(err, QRN_ERR_UNSUPPORTED,
                            "tensor %s scales another: such files cannot be quantised",
                            qrn_quote(t->name, n_name).text);
        struct qrn_row_run whole = {
            .tensor = t, .dtype = t->dtype, .n_cols = t->n_dims ? t->shape[t->n_dims - 1] : 1};
        int64_t n_rows = whole.n_cols > 0;
        for (int k = 0; k < t->n_dims - 1; k++) n_rows *= t->shape[k];
        if (t->dtype == QRN_DTYPE_COUNT || !qrn_row_bytes(t->dtype, whole.n_cols, &whole.row_bytes))
            return qrn_fail(err, QRN_ERR_UNSUPPORTED, "tensor %s is of type %s, which is not known",
                            qrn_quote(t->name, n_name).text, t->type_name);
        QRN_TRY(qrn_convert_add(list, t->name, t->n_dims, t->shape, QRN_AS_IS, err));
        QRN_TRY(qrn_convert_add_rows(list, &whole, 0, n_rows, err));
    }
    return QRN_OK;
}

enum qrn_status qrn_convert_list(const struct qrn_model_files *files, const struct qrn_host *host,
                                 struct qrn_convert *list, struct qrn_error *err)
{
    *list = (struct qrn_convert){.n_k_heads = files->config.n_k_heads,
                                 .n_v_heads = files->config.n_v_heads,
                                 .allocator = host->allocator};
    return files->format == QRN_FORMAT_GGUF ? list_gguf(files, list, err)
                                            : qrn_convert_list_hf(files, list, err);
}

void qrn_convert_free(struct qrn_convert *list)
{
    qrn_free(&list->allocator, list->tensors, list->n_tensors_reserved * sizeof *list->tensors);
    qrn_free(&list->allocator, list->runs, list->n_runs_reserved * sizeof *list->runs);
    *list = (struct qrn_convert){0};
}

static int by_order(const void *a, const void *b)
{
    const struct qrn_convert_tensor *x = a, *y = b;
    return qrn_recipe_order(x->name, y->name);
}

/* The one type that all rows have, or QRN_DTYPE_COUNT. */
static enum qrn_dtype type_of(const struct qrn_convert *list, const struct qrn_convert_tensor *t)
{
    const struct qrn_row_run *runs = list->runs + t->first_run;
    for (size_t i = 0; i < t->n_runs; i++)
        if (runs[i].scales || runs[i].dtype != runs[0].dtype) return QRN_DTYPE_COUNT;
    return t->n_runs ? runs[0].dtype : QRN_F32;
}

static enum qrn_status check_codecs(const struct qrn_convert *list,
                                    const struct qrn_convert_tensor *t, struct qrn_error *err)
{
    if (!qrn_encoder(t->dtype))
        return qrn_fail(err, QRN_ERR_UNSUPPORTED, "%s: type %s cannot be written", t->name,
                        qrn_dtype_info(t->dtype)->name);
    for (size_t i = t->first_run; i < t->first_run + t->n_runs; i++) {
        const struct qrn_row_run *run = &list->runs[i];
        if (run->scales || qrn_decoder(run->dtype)) continue;
        return qrn_fail(err, QRN_ERR_UNSUPPORTED, "tensor %s is of type %s, which has no values",
                        qrn_quote(run->tensor->name, strlen(run->tensor->name)).text,
                        run->tensor->type_name);
    }
    return QRN_OK;
}

enum qrn_status qrn_convert_plan(struct qrn_convert *list, const struct qrn_model_files *files,
                                 const struct qrn_recipe_target *target, bool pure,
                                 struct qrn_error *err)
{
    const struct qrn_model_config *c = &files->config;
    const bool is_gguf = files->format == QRN_FORMAT_GGUF;
    const struct qrn_recipe_model model = {
        .n_layers = (int)(c->n_layers + (is_gguf ? c->n_mtp_layers : 0)),
        .n_experts = (int)c->n_experts,
        .n_heads = (int)c->n_heads,
        .n_kv_heads = (int)c->n_kv_heads};
    const size_t n = list->n_tensors,
                 element = sizeof(struct qrn_recipe_tensor) + sizeof(enum qrn_dtype);
    struct qrn_recipe_tensor *tensors = qrn_alloc(&list->allocator, n * element);
    if (!tensors) return qrn_fail_memory(err, n * element, "the types of tensors");
    enum qrn_dtype *dtypes = (enum qrn_dtype *)(void *)(tensors + n);
    if (n) qsort(list->tensors, n, sizeof *list->tensors, by_order);
    for (size_t i = 0; i < n; i++)
        tensors[i] = (struct qrn_recipe_tensor){.name = list->tensors[i].name,
                                                .n_dims = list->tensors[i].n_dims,
                                                .shape = list->tensors[i].shape};
    enum qrn_status s = qrn_recipe_plan(target, pure, &model, tensors, n, dtypes, err);
    for (size_t i = 0; i < n && s == QRN_OK; i++) {
        struct qrn_convert_tensor *t = &list->tensors[i];
        const enum qrn_dtype had = type_of(list, t);
        /* What is not quantised keeps the type that it has in a GGUF file. */
        t->dtype = is_gguf && !qrn_recipe_quantises(&tensors[i]) ? had : dtypes[i];
        t->is_copy = t->dtype == had && t->change == QRN_AS_IS && !t->head_columns;
        if (!t->is_copy) s = check_codecs(list, t, err);
    }
    qrn_free(&list->allocator, tensors, n * element);
    return s;
}
