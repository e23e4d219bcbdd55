/* SPDX-License-Identifier: MIT
 * Writing a model as a GGUF file of another type: files are opened, tensors listed, types decided,
 * rows encoded. */
#include <quern/quantize.h>

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "base/error.h"
#include "base/memory.h"
#include "model/convert.h"

const char *qrn_quantize_type(size_t i)
{
    const struct qrn_recipe_target *target = qrn_recipe_at(i);
    return target ? target->name : NULL;
}

/* --- the output is none of the inputs --- */

enum { MAX_PATH = 4096 };
static const char part_suffix[] = ".part"; /* what a file is called until it is complete */

/* The files that are written, as far as they exist. */
struct outputs {
    struct stat st[2];
    bool exists[2];
    const char *path;
};

static enum qrn_status refuse_input(const struct outputs *out, const char *input,
                                    struct qrn_error *err)
{
    struct stat st;
    if (stat(input, &st) != 0) return QRN_OK;
    for (int i = 0; i < 2; i++)
        if (out->exists[i] && st.st_dev == out->st[i].st_dev && st.st_ino == out->st[i].st_ino)
            return qrn_fail(err, QRN_ERR_ARGUMENT, "%s%s is a file that is read (%s)", out->path,
                            i ? part_suffix : "", input);
    return QRN_OK;
}

/* "x-00001-of-00003.gguf": the names of all. */
static enum qrn_status refuse_set(const struct outputs *out, const char *path, size_t n_files,
                                  struct qrn_error *err)
{
    const size_t n = strlen(path), n_suffix = strlen("-00001-of-00003.gguf");
    char name[MAX_PATH];
    for (size_t i = 0; i < n_files && n >= n_suffix; i++) {
        if (snprintf(name, sizeof name, "%.*s-%05zu-of-%05zu.gguf", (int)(n - n_suffix), path,
                     i + 1, n_files) < MAX_PATH)
            QRN_TRY(refuse_input(out, name, err));
    }
    return QRN_OK;
}

/* Of a directory: every file of the kinds that a model is made of. */
static enum qrn_status refuse_members(const struct outputs *out, const char *path,
                                      struct qrn_error *err)
{
    static const char *const kinds[] = {".json", ".jinja", ".safetensors"};
    enum qrn_status s = QRN_OK;
    DIR *dir = opendir(path);
    if (!dir) return qrn_fail(err, QRN_ERR_IO, "%s: cannot list the directory", path);
    for (const struct dirent *e; s == QRN_OK && (e = readdir(dir)) != NULL;) {
        char name[MAX_PATH];
        const size_t n = strlen(e->d_name);
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            const size_t n_kind = strlen(kinds[k]);
            if (n < n_kind || strcmp(e->d_name + n - n_kind, kinds[k]) != 0) continue;
            if (s == QRN_OK && snprintf(name, sizeof name, "%s/%s", path, e->d_name) < MAX_PATH)
                s = refuse_input(out, name, err);
        }
    }
    closedir(dir);
    return s;
}

static enum qrn_status check_output(const struct qrn_quantize_options *o,
                                    const struct qrn_model_files *files, struct qrn_error *err)
{
    struct outputs out = {.path = o->out_path};
    char part[MAX_PATH];
    if (o->source) return QRN_OK; /* what it reads has no path that we know */
    if (snprintf(part, sizeof part, "%s%s", o->out_path, part_suffix) >= MAX_PATH)
        return qrn_fail(err, QRN_ERR_ARGUMENT, "out_path is longer than %d bytes",
                        MAX_PATH - (int)sizeof part_suffix);
    out.exists[0] = stat(o->out_path, &out.st[0]) == 0;
    out.exists[1] = stat(part, &out.st[1]) == 0;
    if (!out.exists[0] && !out.exists[1]) return QRN_OK;
    if (files->format != QRN_FORMAT_GGUF) return refuse_members(&out, o->path, err);
    QRN_TRY(refuse_input(&out, o->path, err));
    return files->gguf.n_files > 1 ? refuse_set(&out, o->path, files->gguf.n_files, err) : QRN_OK;
}

/* --- all of it --- */

static enum qrn_status write_file(const struct qrn_quantize_options *o,
                                  const struct qrn_model_options *model,
                                  const struct qrn_model_files *files,
                                  const struct qrn_recipe_target *target,
                                  const struct qrn_convert *list, struct qrn_error *err)
{
    struct qrn_gguf_writer *w;
    QRN_TRY(qrn_gguf_writer_create(o->out_path, &o->host, &w, err));
    enum qrn_status s = qrn_convert_metadata(files, model, target, w, err);
    if (s == QRN_OK) s = qrn_convert_write(list, o->progress, o->progress_user, w, err);
    if (s == QRN_OK) return qrn_gguf_writer_finish(w, err);
    qrn_gguf_writer_discard(w);
    return s;
}

static enum qrn_status convert(const struct qrn_quantize_options *o,
                               const struct qrn_model_options *model,
                               const struct qrn_model_files *files,
                               const struct qrn_recipe_target *target, struct qrn_error *err)
{
    struct qrn_convert list = {0};
    QRN_TRY(check_output(o, files, err));
    enum qrn_status s = qrn_convert_list(files, &o->host, &list, err);
    if (s == QRN_OK) s = qrn_convert_plan(&list, files, target, o->pure, err);
    if (s == QRN_OK) s = write_file(o, model, files, target, &list, err);
    qrn_convert_free(&list);
    return s;
}

enum qrn_status qrn_quantize(const struct qrn_quantize_options *o, struct qrn_error *err)
{
    if (!o) return qrn_fail(err, QRN_ERR_ARGUMENT, "options is NULL");
    if (!o->path && !o->source) return qrn_fail(err, QRN_ERR_ARGUMENT, "path is NULL");
    if (!o->out_path) return qrn_fail(err, QRN_ERR_ARGUMENT, "out_path is NULL");
    if (!o->type) return qrn_fail(err, QRN_ERR_ARGUMENT, "type is NULL");
    const struct qrn_recipe_target *target = qrn_recipe_find(o->type);
    if (!target) return qrn_fail(err, QRN_ERR_ARGUMENT, "type \"%.40s\" is not known", o->type);
    const struct qrn_model_options model = {.path = o->path, .source = o->source, .host = o->host};
    struct qrn_model_files files;
    QRN_TRY(qrn_model_files_open(&model, &files, err));
    const enum qrn_status s = convert(o, &model, &files, target, err);
    qrn_model_files_close(&files);
    return s;
}
