/* SPDX-License-Identifier: MIT
 * What lies in the files of a model, whether or not it can be run. */
#include "listing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "formats/recipe.h"

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), n_end = strlen(end);
    return n >= n_end && strcmp(text + n - n_end, end) == 0;
}

enum qrn_status listing_open(const char *path, const struct qrn_host *host, struct listing *out,
                             struct qrn_error *err)
{
    *out = (struct listing){.is_gguf = false};
    struct stat st;
    const bool is_folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    out->is_gguf = !is_folder && !ends_with(path, ".safetensors");
    if (out->is_gguf) {
        QRN_TRY(qrn_gguf_open(path, NULL, host, &out->gguf, err));
    } else if (is_folder) {
        QRN_TRY(qrn_safetensors_open_dir(path, NULL, host, &out->safetensors, err));
    } else {
        QRN_TRY(qrn_safetensors_open(path, NULL, host, &out->safetensors, err));
    }
    out->archive = out->is_gguf ? &out->gguf.archive : &out->safetensors.archive;
    out->n_files = out->is_gguf ? out->gguf.n_files : out->safetensors.n_files;
    const struct qrn_file *files = out->is_gguf ? out->gguf.files : out->safetensors.files;
    for (size_t i = 0; i < out->n_files; i++) out->file_bytes += files[i].n_bytes;
    return QRN_OK;
}

void listing_close(struct listing *l)
{
    qrn_gguf_close(&l->gguf);
    qrn_safetensors_close(&l->safetensors);
    *l = (struct listing){.is_gguf = false};
}

double tensor_elements(const struct qrn_archive_tensor *t)
{
    double n = 1.0;
    for (int i = 0; i < t->n_dims; i++) n *= (double)t->shape[i];
    return n;
}

static int more_bytes_first(const void *a, const void *b)
{
    const struct type_total *x = a, *y = b;
    if (x->n_bytes != y->n_bytes) return x->n_bytes < y->n_bytes ? 1 : -1;
    return strcmp(x->name, y->name);
}

struct type_total *listing_types(const struct listing *l, size_t *n_out)
{
    struct type_total *totals = calloc(l->archive->n_tensors + 1, sizeof *totals);
    if (!totals) return NULL;
    size_t n = 0;
    for (size_t i = 0; i < l->archive->n_tensors; i++) {
        const struct qrn_archive_tensor *t = &l->archive->tensors[i];
        size_t k = 0;
        while (k < n && strcmp(totals[k].name, t->type_name) != 0) k++;
        if (k == n) totals[n++].name = t->type_name;
        totals[k].n_tensors++;
        totals[k].n_elements += tensor_elements(t);
        totals[k].n_bytes += t->n_bytes;
    }
    qsort(totals, n, sizeof *totals, more_bytes_first);
    *n_out = n;
    return totals;
}

uint64_t listing_tensor_bytes(const struct listing *l)
{
    uint64_t n_bytes = 0;
    for (size_t i = 0; i < l->archive->n_tensors; i++) n_bytes += l->archive->tensors[i].n_bytes;
    return n_bytes;
}

const char *listing_file_type(const struct listing *l)
{
    int64_t file_type;
    const struct qrn_recipe_target *target;
    if (!l->is_gguf || !qrn_gguf_i64(&l->gguf, "general.file_type", &file_type)) return NULL;
    for (size_t i = 0; (target = qrn_recipe_at(i)); i++)
        if (target->file_type == file_type) return target->name;
    return NULL;
}
