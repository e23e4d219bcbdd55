/* SPDX-License-Identifier: MIT
 * GGUF: opening a file or a split set. */
#include "formats/gguf.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "base/error.h"
#include "base/memory.h"
#include "formats/gguf_read.h"

#define MAX_PARTS     99999 /* five digits */
#define SUFFIX_FORMAT "-%05d-of-%05d.gguf"
#define N_SUFFIX      20 /* "-00001-of-00003.gguf" */

/* What is needed while a set is being opened. */
struct opening {
    struct qrn_gguf *gguf;
    const struct qrn_host *host;
    const struct qrn_source *source;
    struct qrn_gguf_part *parts; /* [n_parts] */
    size_t n_parts;
    char *path; /* of the first; the suffix is rewritten for the others */
    size_t n_path;
};

static enum qrn_status open_part(struct opening *o, size_t i, struct qrn_error *err)
{
    struct qrn_file *file = &o->gguf->files[i];
    QRN_TRY(o->source ? qrn_file_open_source(o->source, o->path, o->host, file, err)
                      : qrn_file_open(o->path, o->host, file, err));
    const enum qrn_status s = qrn_gguf_read_metadata(file, &o->gguf->allocator, &o->parts[i], err);
    return s == QRN_OK ? s : qrn_error_prefix(err, s, "%s", o->path);
}

/* An integer key of a part; absent: what it is then. */
static enum qrn_status part_int(const struct qrn_gguf_part *part, const char *key, int64_t absent,
                                int64_t *out, struct qrn_error *err)
{
    const struct qrn_gguf view = {.values = part->values, .n_values = part->n_values};
    *out = absent;
    if (!qrn_gguf_find(&view, key)) return QRN_OK;
    if (!qrn_gguf_i64(&view, key, out))
        return qrn_fail(err, QRN_ERR_FORMAT, "key \"%s\" is not an integer", key);
    return QRN_OK;
}

/* Is part i what the name says, one of n? */
static enum qrn_status check_part(const struct qrn_gguf_part *part, size_t i, size_t n,
                                  struct qrn_error *err)
{
    int64_t no, count;
    QRN_TRY(part_int(part, "split.no", 0, &no, err));
    QRN_TRY(part_int(part, "split.count", 0, &count, err));
    if (count != (int64_t)n)
        return qrn_fail(err, QRN_ERR_FORMAT,
                        "split.count is %" PRId64 ", but the first file of the set says %zu", count,
                        n);
    if (no != (int64_t)i)
        return qrn_fail(err, QRN_ERR_FORMAT,
                        "split.no is %" PRId64
                        ", but the name says %zu: the file stands in the place "
                        "of another of the set",
                        no, i);
    return QRN_OK;
}

static bool name_part(struct opening *o, size_t i)
{
    char suffix[N_SUFFIX + 24];
    const int n = snprintf(suffix, sizeof suffix, SUFFIX_FORMAT, (int)i + 1, (int)o->n_parts);
    if (n != N_SUFFIX || o->n_path < N_SUFFIX) return false;
    char *at = o->path + o->n_path - N_SUFFIX;
    if (i == 0) return memcmp(at, suffix, N_SUFFIX) == 0;
    memcpy(at, suffix, N_SUFFIX);
    return true;
}

/* Grows the lists from one to n and opens the others. */
static enum qrn_status open_set(struct opening *o, size_t n, struct qrn_error *err)
{
    struct qrn_gguf *g = o->gguf;
    int64_t no;
    QRN_TRY(part_int(&o->parts[0], "split.no", 0, &no, err));
    if (no != 0)
        return qrn_fail(err, QRN_ERR_ARGUMENT,
                        "%s is number %" PRId64 " of a set of %zu files; open the first, "
                        "...-00001-of-%05zu.gguf",
                        o->path, no + 1, n, n);
    struct qrn_gguf_part *parts =
        qrn_realloc(&g->allocator, o->parts, sizeof *parts, n * sizeof *parts);
    if (!parts) return qrn_fail_memory(err, n * sizeof *parts, "the files of a split set");
    o->parts = parts;
    o->n_parts = n;
    memset(parts + 1, 0, (n - 1) * sizeof *parts);
    struct qrn_file *files = qrn_realloc(&g->allocator, g->files, sizeof *files, n * sizeof *files);
    if (!files) return qrn_fail_memory(err, n * sizeof *files, "the files of a split set");
    g->files = files;
    g->n_files = n;
    memset(files + 1, 0, (n - 1) * sizeof *files);
    if (!name_part(o, 0))
        return qrn_fail(
            err, QRN_ERR_FORMAT,
            "%s: split.count is %zu, but the name does not end with -00001-of-%05zu.gguf", o->path,
            n, n);
    for (size_t i = 1; i < n; i++) {
        (void)name_part(o, i);
        QRN_TRY(open_part(o, i, err));
        const enum qrn_status s = check_part(&o->parts[i], i, n, err);
        if (s != QRN_OK) return qrn_error_prefix(err, s, "%s", o->path);
        qrn_gguf_part_free(&o->parts[i], &g->allocator);
    }
    return QRN_OK;
}

static enum qrn_status read_all_tensors(struct opening *o, struct qrn_error *err)
{
    struct qrn_gguf *g = o->gguf;
    size_t n_tensors = 0;
    for (size_t i = 0; i < o->n_parts; i++) n_tensors += o->parts[i].n_tensors;
    int64_t expected;
    QRN_TRY(part_int(&o->parts[0], "split.tensors.count", (int64_t)n_tensors, &expected, err));
    if (o->n_parts > 1 && expected != (int64_t)n_tensors)
        return qrn_fail(err, QRN_ERR_FORMAT,
                        "split.tensors.count is %" PRId64 ", but the %zu files list %zu tensors",
                        expected, o->n_parts, n_tensors);
    if (n_tensors > QRN_GGUF_MAX_TENSORS)
        return qrn_fail(err, QRN_ERR_FORMAT, "the set has %zu tensors, the limit is %" PRIu64,
                        n_tensors, QRN_GGUF_MAX_TENSORS);
    QRN_TRY(qrn_archive_reserve(&g->archive, n_tensors, err));
    for (size_t i = 0; i < o->n_parts; i++) {
        if (i) (void)name_part(o, i);
        QRN_TRY(qrn_gguf_read_tensors(&g->files[i], &o->parts[i], (int)i, &g->archive, err));
    }
    return qrn_archive_sort(&g->archive, err);
}

static enum qrn_status open_all(struct opening *o, const char *path, struct qrn_error *err)
{
    struct qrn_gguf *g = o->gguf;
    o->path = qrn_strdup(&g->allocator, path);
    if (!o->path) return qrn_fail_memory(err, strlen(path), "a path");
    o->n_path = strlen(path);
    g->files = qrn_alloc_zeroed(&g->allocator, sizeof *g->files);
    if (!g->files) return qrn_fail_memory(err, sizeof *g->files, "a file");
    g->n_files = 1;
    o->parts = qrn_alloc_zeroed(&g->allocator, sizeof *o->parts);
    if (!o->parts) return qrn_fail_memory(err, sizeof *o->parts, "a file");
    o->n_parts = 1;

    QRN_TRY(open_part(o, 0, err));
    int64_t n;
    enum qrn_status s = part_int(&o->parts[0], "split.count", 0, &n, err);
    if (s == QRN_OK && (n < 0 || n > MAX_PARTS))
        s = qrn_fail(err, QRN_ERR_FORMAT, "split.count is %" PRId64 ", wants 0 to %d", n,
                     MAX_PARTS);
    if (s != QRN_OK) return qrn_error_prefix(err, s, "%s", path);
    if (n > 1) QRN_TRY(open_set(o, (size_t)n, err));
    s = read_all_tensors(o, err);
    return s == QRN_OK ? s : qrn_error_prefix(err, s, "%s", o->path);
}

enum qrn_status qrn_gguf_open(const char *path, const struct qrn_source *source,
                              const struct qrn_host *host, struct qrn_gguf *gguf,
                              struct qrn_error *err)
{
    *gguf = (struct qrn_gguf){0};
    if (host) gguf->allocator = host->allocator;
    qrn_archive_init(&gguf->archive, host);
    struct opening o = {.gguf = gguf, .host = host, .source = source};
    const enum qrn_status s = open_all(&o, path, err);
    if (s == QRN_OK) {
        gguf->values = o.parts[0].values;
        gguf->n_values = o.parts[0].n_values;
        o.parts[0].values = NULL;
    }
    for (size_t i = 0; i < o.n_parts; i++) qrn_gguf_part_free(&o.parts[i], &gguf->allocator);
    qrn_free(&gguf->allocator, o.parts, o.n_parts * sizeof *o.parts);
    qrn_free(&gguf->allocator, o.path, o.n_path + 1);
    if (s != QRN_OK) qrn_gguf_close(gguf);
    return s;
}

void qrn_gguf_close(struct qrn_gguf *gguf)
{
    qrn_archive_free(&gguf->archive);
    qrn_free(&gguf->allocator, gguf->values, gguf->n_values * sizeof *gguf->values);
    for (size_t i = 0; i < gguf->n_files; i++) qrn_file_close(&gguf->files[i]);
    qrn_free(&gguf->allocator, gguf->files, gguf->n_files * sizeof *gguf->files);
    *gguf = (struct qrn_gguf){0};
}
