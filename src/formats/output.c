/* SPDX-License-Identifier: MIT
 * A file being written: it gets its name when it is complete, and is removed otherwise. */
#include "formats/output.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include "base/error.h"
#include "base/memory.h"

static enum qrn_status fail_io(struct qrn_output *out)
{
    if (out->status == QRN_OK)
        out->status =
            qrn_fail(&out->error, QRN_ERR_IO, "%s: %s", out->path, strerror(errno ? errno : EIO));
    return out->status;
}

static void release(struct qrn_output *out)
{
    qrn_strfree(&out->allocator, out->part);
    qrn_strfree(&out->allocator, out->path);
    out->part = out->path = NULL;
}

static enum qrn_status name_files(struct qrn_output *out, const char *path, struct qrn_error *err)
{
    static const char suffix[] = ".part";
    const size_t n = strlen(path);
    struct stat st;
    out->path = qrn_strdup(&out->allocator, path);
    if (!out->path) return qrn_fail_memory(err, n, "a path");
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return qrn_fail(err, QRN_ERR_IO, "%s: is a directory", path);
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) return QRN_OK;
    out->part = qrn_alloc(&out->allocator, n + sizeof suffix);
    if (!out->part) return qrn_fail_memory(err, n + sizeof suffix, "a path");
    memcpy(out->part, path, n);
    memcpy(out->part + n, suffix, sizeof suffix);
    return QRN_OK;
}

enum qrn_status qrn_output_open(struct qrn_output *out, const char *path,
                                const struct qrn_host *host, struct qrn_error *err)
{
    *out = (struct qrn_output){0};
    if (host) out->allocator = host->allocator;
    enum qrn_status s = name_files(out, path, err);
    if (s == QRN_OK) {
        out->file = fopen(out->part ? out->part : out->path, "wb");
        if (!out->file)
            s = qrn_fail(err, QRN_ERR_IO, "%s: %s", out->part ? out->part : path, strerror(errno));
    }
    if (s != QRN_OK) release(out);
    return s;
}

void qrn_output_write(struct qrn_output *out, const void *bytes, size_t n_bytes)
{
    errno = 0;
    if (out->status == QRN_OK && n_bytes && fwrite(bytes, 1, n_bytes, out->file) != n_bytes)
        (void)fail_io(out);
}

void qrn_output_zeros(struct qrn_output *out, size_t n_bytes)
{
    static const char zeros[256];
    while (n_bytes) {
        const size_t n = n_bytes < sizeof zeros ? n_bytes : sizeof zeros;
        qrn_output_write(out, zeros, n);
        n_bytes -= n;
    }
}

enum qrn_status qrn_output_finish(struct qrn_output *out, struct qrn_error *err)
{
    errno = 0;
    if (fclose(out->file) != 0) (void)fail_io(out);
    if (out->part && out->status == QRN_OK && rename(out->part, out->path) != 0) (void)fail_io(out);
    if (out->part && out->status != QRN_OK) (void)remove(out->part);
    const enum qrn_status s = out->status;
    if (s != QRN_OK && err) *err = out->error;
    release(out);
    return s;
}
