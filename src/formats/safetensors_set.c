/* SPDX-License-Identifier: MIT
 * safetensors: a directory, with or without an index of shards. */
#include "formats/safetensors.h"

#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/quote.h"
#include "formats/safetensors_read.h"

#define INDEX_NAME  "model.safetensors.index.json"
#define SINGLE_NAME "model.safetensors"
#define MAX_SHARDS  4096

/* What is needed while a directory is being opened. */
struct opening {
    struct qrn_safetensors *st;
    const char *dir;
    const struct qrn_source *source;
    const struct qrn_host *host;
    struct qrn_json index;
    const char **shards; /* sorted names inside index, [st->n_files] */
};

/* "dir/name", or the name alone for a source.  The caller frees it with qrn_strfree. */
static enum qrn_status make_path(const struct opening *o, const char *name, char **out,
                                 struct qrn_error *err)
{
    const size_t n_dir = o->source ? 0 : strlen(o->dir), n_name = strlen(name);
    char *path = qrn_alloc(&o->st->allocator, n_dir + (n_dir > 0) + n_name + 1);
    if (!path) return qrn_fail_memory(err, n_dir + n_name + 2, "a path");
    char *at = path;
    if (n_dir) {
        memcpy(at, o->dir, n_dir);
        at += n_dir;
        *at++ = '/';
    }
    memcpy(at, name, n_name + 1);
    *out = path;
    return QRN_OK;
}

static enum qrn_status read_index(struct opening *o, const char *path, struct qrn_error *err)
{
    struct qrn_file file;
    QRN_TRY(o->source ? qrn_file_open_source(o->source, path, o->host, &file, err)
                      : qrn_file_open(path, o->host, &file, err));
    const enum qrn_status s = qrn_json_parse(
        file.bytes, file.n_bytes, qrn_json_budget(file.n_bytes), o->host, &o->index, err);
    qrn_file_close(&file);
    return s == QRN_OK ? s : qrn_error_prefix(err, s, "%s", path);
}

static bool is_plain_name(const char *name)
{
    return *name && strcmp(name, ".") != 0 && strcmp(name, "..") != 0 && !strchr(name, '/') &&
           !strchr(name, '\\');
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Fills o->shards with the distinct names of the map; *n_all: how many places it has. */
static enum qrn_status list_shards(struct opening *o, const struct qrn_json_value *map,
                                   size_t *n_all, size_t *n_shards, struct qrn_error *err)
{
    if (!qrn_json_is(map, QRN_JSON_OBJECT))
        return qrn_fail(err, QRN_ERR_FORMAT, "weight_map is missing or not an object");
    const size_t n = map->n;
    o->shards = qrn_alloc(&o->st->allocator, n * sizeof *o->shards);
    if (!o->shards) return qrn_fail_memory(err, n * sizeof *o->shards, "the names of shards");
    *n_all = n;
    const struct qrn_json_value *key = map + 1;
    size_t i;
    for (i = 0; i < n; i++, key = qrn_json_next(key + 1)) {
        const struct qrn_quoted tensor = qrn_quote(key->as.string, key->n);
        if (key[1].type != QRN_JSON_STRING)
            return qrn_fail(err, QRN_ERR_FORMAT, "the shard of tensor %s is not a string",
                            tensor.text);
        if (!is_plain_name(key[1].as.string))
            return qrn_fail(err, QRN_ERR_FORMAT,
                            "tensor %s is said to be in %s, wants a plain file name", tensor.text,
                            qrn_quote(key[1].as.string, key[1].n).text);
        o->shards[i] = key[1].as.string;
    }
    if (n > 1) qsort(o->shards, n, sizeof *o->shards, compare_texts);
    *n_shards = 0;
    for (i = 0; i < n; i++)
        if (i == 0 || strcmp(o->shards[i], o->shards[*n_shards - 1]) != 0)
            o->shards[(*n_shards)++] = o->shards[i];
    if (*n_shards > MAX_SHARDS)
        return qrn_fail(err, QRN_ERR_FORMAT, "weight_map names %zu shards, the limit is %d",
                        *n_shards, MAX_SHARDS);
    return QRN_OK;
}

static enum qrn_status add_shards(struct opening *o, size_t n_shards, struct qrn_error *err)
{
    struct qrn_safetensors *st = o->st;
    st->files = qrn_alloc_zeroed(&st->allocator, n_shards * sizeof *st->files);
    if (!st->files) return qrn_fail_memory(err, n_shards * sizeof *st->files, "shards");
    st->n_files = n_shards;
    for (size_t i = 0; i < n_shards; i++) {
        char *path;
        QRN_TRY(make_path(o, o->shards[i], &path, err));
        const enum qrn_status s = qrn_safetensors_add_file(st, i, path, o->source, o->host, err);
        qrn_strfree(&st->allocator, path);
        QRN_TRY(s);
    }
    return QRN_OK;
}

static enum qrn_status check_map(const struct opening *o, const struct qrn_json_value *map,
                                 struct qrn_error *err)
{
    const struct qrn_json_value *key = map + 1;
    for (uint32_t i = 0; i < map->n; i++, key = qrn_json_next(key + 1)) {
        const char *shard = key[1].as.string;
        const struct qrn_archive_tensor *t = qrn_archive_find(&o->st->archive, key->as.string);
        if (!t || strcmp(o->shards[t->i_file], shard) != 0)
            return qrn_fail(err, QRN_ERR_FORMAT, "the index says that tensor %s is in %s, it is %s",
                            qrn_quote(key->as.string, key->n).text, qrn_quote(shard, key[1].n).text,
                            t ? "in another shard" : "not there");
    }
    return QRN_OK;
}

static enum qrn_status open_shards(struct opening *o, struct qrn_error *err)
{
    const struct qrn_json_value *map = qrn_json_member(o->index.values, "weight_map");
    size_t n_all = 0, n_shards = 0;
    enum qrn_status s = list_shards(o, map, &n_all, &n_shards, err);
    if (s != QRN_OK) s = qrn_error_prefix(err, s, INDEX_NAME);
    if (s == QRN_OK) s = add_shards(o, n_shards, err);
    if (s == QRN_OK) s = qrn_archive_sort(&o->st->archive, err);
    if (s == QRN_OK) s = check_map(o, map, err);
    qrn_free(&o->st->allocator, o->shards, n_all * sizeof *o->shards);
    o->shards = NULL;
    return s;
}

enum qrn_status qrn_safetensors_open_dir(const char *dir, const struct qrn_source *source,
                                         const struct qrn_host *host, struct qrn_safetensors *st,
                                         struct qrn_error *err)
{
    *st = (struct qrn_safetensors){0};
    if (host) st->allocator = host->allocator;
    qrn_archive_init(&st->archive, host);
    struct opening o = {.st = st, .dir = dir, .source = source, .host = host};
    char *path;
    QRN_TRY(make_path(&o, INDEX_NAME, &path, err));
    struct qrn_error why = {0};
    enum qrn_status s = read_index(&o, path, &why);
    qrn_strfree(&st->allocator, path);
    if (s == QRN_ERR_IO) { /* no index: one file */
        QRN_TRY(make_path(&o, SINGLE_NAME, &path, err));
        s = qrn_safetensors_open(path, source, host, st, err);
        qrn_strfree(host ? &host->allocator : NULL, path);
        return s == QRN_ERR_IO ? qrn_error_prefix(err, s, "without %s", INDEX_NAME) : s;
    }
    if (s != QRN_OK) {
        if (err) *err = why;
        return s;
    }
    s = open_shards(&o, err);
    qrn_json_free(&o.index);
    if (s != QRN_OK) qrn_safetensors_close(st);
    return s;
}
