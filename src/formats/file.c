/* SPDX-License-Identifier: MIT
 * One file's bytes: mapped from disk, in place in a source, or copied out of it. */
#include "formats/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/error.h"
#include "base/memory.h"

enum { ORIGIN_NONE, ORIGIN_MAPPED, ORIGIN_SOURCE, ORIGIN_COPY };

static const uint8_t no_bytes[1]; /* what an empty file points at */

static enum qrn_status map_descriptor(int fd, const char *path, struct qrn_file *file,
                                      struct qrn_error *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0) return qrn_fail(err, QRN_ERR_IO, "%s: %s", path, strerror(errno));
    if (S_ISDIR(st.st_mode))
        return qrn_fail(err, QRN_ERR_IO, "%s: is a directory, a file is wanted", path);
    if (!S_ISREG(st.st_mode)) return qrn_fail(err, QRN_ERR_IO, "%s: is not a regular file", path);
    if ((uintmax_t)st.st_size > SIZE_MAX / 2)
        return qrn_fail(err, QRN_ERR_IO, "%s: %jd bytes do not fit the address space", path,
                        (intmax_t)st.st_size);
    if (st.st_size == 0) {
        file->bytes = no_bytes;
        return QRN_OK;
    }
    const size_t n_bytes = (size_t)st.st_size;
    void *memory = mmap(NULL, n_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (memory == MAP_FAILED)
        return qrn_fail(err, QRN_ERR_IO, "%s: cannot map %zu bytes: %s", path, n_bytes,
                        strerror(errno));
    file->bytes = file->handle = memory;
    file->n_bytes = n_bytes;
    file->origin = ORIGIN_MAPPED;
    return QRN_OK;
}

enum qrn_status qrn_file_open(const char *path, const struct qrn_host *host, struct qrn_file *file,
                              struct qrn_error *err)
{
    *file = (struct qrn_file){0};
    if (host) file->allocator = host->allocator;
    /* O_NONBLOCK: a FIFO without a writer would hold us here. */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return qrn_fail(err, QRN_ERR_IO, "%s: %s", path, strerror(errno));
    const enum qrn_status s = map_descriptor(fd, path, file, err);
    close(fd); /* the mapping keeps the file */
    return s;
}

/* Passes on what a source said, or says something if it said nothing. */
static enum qrn_status source_failed(struct qrn_error *err, enum qrn_status status,
                                     const char *name, const char *verb,
                                     const struct qrn_error *said)
{
    if (said->text[0]) return qrn_fail(err, status, "%s: %s", name, said->text);
    return qrn_fail(err, status, "%s: the source cannot %s it", name, verb);
}

/* Takes an open source file: in place, or as a copy that needs the source no more. */
static enum qrn_status take_source(const char *name, void *handle, uint64_t n_bytes,
                                   struct qrn_file *file, struct qrn_error *err)
{
    const struct qrn_source *source = file->source;
    if (n_bytes > SIZE_MAX / 2)
        return qrn_fail(err, QRN_ERR_IO, "%s: %" PRIu64 " bytes do not fit the address space", name,
                        n_bytes);
    file->n_bytes = (size_t)n_bytes;
    file->bytes = source->map ? source->map(source->user, handle) : NULL;
    if (file->bytes) {
        file->handle = handle;
        file->origin = ORIGIN_SOURCE;
        return QRN_OK;
    }
    void *copy = qrn_alloc(&file->allocator, file->n_bytes);
    if (!copy) return qrn_fail_memory(err, file->n_bytes, name);
    struct qrn_error said = {0};
    const enum qrn_status s =
        n_bytes ? source->read(source->user, handle, 0, copy, file->n_bytes, &said) : QRN_OK;
    if (s != QRN_OK) {
        qrn_free(&file->allocator, copy, file->n_bytes);
        return source_failed(err, s, name, "read", &said);
    }
    source->close(source->user, handle);
    file->bytes = file->handle = copy;
    file->origin = ORIGIN_COPY;
    return QRN_OK;
}

enum qrn_status qrn_file_open_source(const struct qrn_source *source, const char *name,
                                     const struct qrn_host *host, struct qrn_file *file,
                                     struct qrn_error *err)
{
    *file = (struct qrn_file){.source = source};
    if (host) file->allocator = host->allocator;
    if (!source->open || !source->read || !source->close)
        return qrn_fail(err, QRN_ERR_ARGUMENT, "%s: the source lacks open, read or close", name);
    void *handle = NULL;
    uint64_t n_bytes = 0;
    struct qrn_error said = {0};
    enum qrn_status s = source->open(source->user, name, &handle, &n_bytes, &said);
    if (s != QRN_OK) {
        s = source_failed(err, s, name, "open", &said);
    } else {
        s = take_source(name, handle, n_bytes, file, err);
        if (s != QRN_OK) source->close(source->user, handle);
    }
    if (s != QRN_OK) *file = (struct qrn_file){0};
    return s;
}

/* A fault maps the pages around it too, as far as a boundary of this size. */
#define FAULT_AROUND ((size_t)64 << 10)

static bool advise(const struct qrn_file *file, const void *from, size_t n, int advice)
{
    const uintptr_t begin = (uintptr_t)file->bytes, at = (uintptr_t)from;
    if (at < begin || at - begin >= file->n_bytes) return false;
    if (file->origin != ORIGIN_MAPPED || n == 0) return true;
    const size_t first = (at - begin) / FAULT_AROUND * FAULT_AROUND;
    size_t end = n < file->n_bytes - (at - begin) ? at - begin + n : file->n_bytes;
    end = file->n_bytes - end < FAULT_AROUND
              ? file->n_bytes
              : (end + FAULT_AROUND - 1) / FAULT_AROUND * FAULT_AROUND;
    (void)madvise((char *)file->handle + first, end - first, advice); /* a hint */
    return true;
}

bool qrn_file_release(const struct qrn_file *file, const void *from, size_t n)
{
    return advise(file, from, n, MADV_DONTNEED);
}

bool qrn_file_prefetch(const struct qrn_file *file, const void *from, size_t n)
{
    return advise(file, from, n, MADV_WILLNEED);
}

void qrn_file_close(struct qrn_file *file)
{
    switch (file->origin) {
    case ORIGIN_MAPPED:
        munmap(file->handle, file->n_bytes);
        break;
    case ORIGIN_SOURCE:
        file->source->close(file->source->user, file->handle);
        break;
    case ORIGIN_COPY:
        qrn_free(&file->allocator, file->handle, file->n_bytes);
        break;
    }
    *file = (struct qrn_file){0};
}
