/* SPDX-License-Identifier: MIT
 * The files of a model, opened and recognised. */
#include "model/files.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "base/error.h"
#include "base/log.h"
#include "text/tokenizer_gguf.h"
#include <quern/text.h>

enum { MAX_PATH = 4096 };

/* A file of the directory, or of the source.  Absent and optional: zeroes. */
static enum qrn_status open_member(const struct qrn_model_options *o, const char *name,
                                   bool required, struct qrn_file *file, struct qrn_error *err)
{
    struct qrn_error own;
    enum qrn_status s;
    *file = (struct qrn_file){0};
    if (o->source) {
        s = qrn_file_open_source(o->source, name, &o->host, file, &own);
    } else {
        char path[MAX_PATH];
        if (snprintf(path, sizeof path, "%s/%s", o->path, name) >= MAX_PATH)
            return qrn_fail(err, QRN_ERR_ARGUMENT, "the path is longer than %d bytes", MAX_PATH);
        s = qrn_file_open(path, &o->host, file, &own);
    }
    if (s == QRN_OK || (s == QRN_ERR_IO && !required)) return QRN_OK;
    if (err) *err = own;
    return s;
}

static enum qrn_status read_config(const struct qrn_model_options *o, struct qrn_model_files *f,
                                   struct qrn_error *err)
{
    struct qrn_file config, generation;
    QRN_TRY(open_member(o, "config.json", true, &config, err));
    enum qrn_status s = open_member(o, "generation_config.json", false, &generation, err);
    if (s == QRN_OK)
        s = qrn_config_from_hf((const char *)config.bytes, config.n_bytes,
                               (const char *)generation.bytes, generation.n_bytes, &o->host,
                               &f->config, err);
    if (s != QRN_OK) s = qrn_error_prefix(err, s, "config.json");
    qrn_file_close(&generation);
    qrn_file_close(&config);
    return s;
}

/* A tokenizer of a kind that we do not know costs the model only its text. */
static enum qrn_status do_without(const struct qrn_model_options *o, enum qrn_status s,
                                  const struct qrn_error *why, struct qrn_error *err)
{
    if (s == QRN_ERR_UNSUPPORTED) {
        qrn_log(&o->host, QRN_LOG_WARNING, "the tokenizer cannot be used: %s", why->text);
        return QRN_OK;
    }
    if (s != QRN_OK && err) *err = *why;
    return s;
}

static enum qrn_status read_tokenizer(const struct qrn_model_options *o, struct qrn_model_files *f,
                                      struct qrn_error *err)
{
    struct qrn_file json, config;
    QRN_TRY(open_member(o, "tokenizer.json", false, &json, err));
    if (!json.bytes) return QRN_OK;
    struct qrn_error why;
    enum qrn_status s = open_member(o, "tokenizer_config.json", false, &config, &why);
    if (s == QRN_OK)
        s = qrn_tokenizer_create_json((struct qrn_span){(const char *)json.bytes, json.n_bytes},
                                      (struct qrn_span){(const char *)config.bytes, config.n_bytes},
                                      &o->host, &f->tokenizer, &why);
    if (s != QRN_OK) s = do_without(o, qrn_error_prefix(&why, s, "tokenizer.json"), &why, err);
    qrn_file_close(&config);
    qrn_file_close(&json);
    return s;
}

static enum qrn_status open_directory(const struct qrn_model_options *o, struct qrn_model_files *f,
                                      struct qrn_error *err)
{
    QRN_TRY(read_config(o, f, err));
    QRN_TRY(qrn_safetensors_open_dir(o->path, o->source, &o->host, &f->safetensors, err));
    f->archive = &f->safetensors.archive;
    f->format = f->config.quant == QRN_QUANT_MLX ? QRN_FORMAT_MLX : QRN_FORMAT_SAFETENSORS;
    return read_tokenizer(o, f, err);
}

static enum qrn_status open_gguf(const struct qrn_model_options *o, struct qrn_model_files *f,
                                 struct qrn_error *err)
{
    QRN_TRY(qrn_gguf_open(o->path, o->source, &o->host, &f->gguf, err));
    f->format = QRN_FORMAT_GGUF;
    f->archive = &f->gguf.archive;
    QRN_TRY(qrn_config_from_gguf(&f->gguf, &o->host, &f->config, err));
    struct qrn_error why;
    const enum qrn_status s = qrn_tokenizer_create_gguf(&f->gguf, &o->host, &f->tokenizer, &why);
    return do_without(o, s, &why, err);
}

enum qrn_status qrn_model_files_open(const struct qrn_model_options *o, struct qrn_model_files *out,
                                     struct qrn_error *err)
{
    struct qrn_model_files f = {0};
    struct stat st;
    if (!o->path && !o->source) return qrn_fail(err, QRN_ERR_ARGUMENT, "path is NULL");
    if (!o->source && stat(o->path, &st) != 0)
        return qrn_fail(err, QRN_ERR_IO, "%s: there is no such file or directory", o->path);
    const bool directory = o->source ? !o->path : S_ISDIR(st.st_mode);
    const enum qrn_status s = directory ? open_directory(o, &f, err) : open_gguf(o, &f, err);
    if (s != QRN_OK) {
        qrn_model_files_close(&f);
        return o->path && !o->source ? qrn_error_prefix(err, s, "%s", o->path) : s;
    }
    *out = f;
    out->archive = directory ? &out->safetensors.archive : &out->gguf.archive;
    return QRN_OK;
}

static const struct qrn_file *all_files(const struct qrn_model_files *f, size_t *n)
{
    const bool gguf = f->format == QRN_FORMAT_GGUF;
    *n = gguf ? f->gguf.n_files : f->safetensors.n_files;
    return gguf ? f->gguf.files : f->safetensors.files;
}

void qrn_model_files_release(const struct qrn_model_files *f, const void *from, size_t n)
{
    size_t n_files;
    const struct qrn_file *files = all_files(f, &n_files);
    for (size_t i = 0; i < n_files && !qrn_file_release(&files[i], from, n); i++) {}
}

void qrn_model_files_prefetch(const struct qrn_model_files *f, const void *from, size_t n)
{
    size_t n_files;
    const struct qrn_file *files = all_files(f, &n_files);
    for (size_t i = 0; i < n_files && !qrn_file_prefetch(&files[i], from, n); i++) {}
}

void qrn_model_files_release_all(const struct qrn_model_files *f)
{
    size_t n_files;
    const struct qrn_file *files = all_files(f, &n_files);
    for (size_t i = 0; i < n_files; i++)
        (void)qrn_file_release(&files[i], files[i].bytes, files[i].n_bytes);
}

void qrn_model_files_close(struct qrn_model_files *f)
{
    qrn_tokenizer_free(f->tokenizer);
    qrn_config_free(&f->config);
    qrn_gguf_close(&f->gguf);
    qrn_safetensors_close(&f->safetensors);
    *f = (struct qrn_model_files){0};
}
