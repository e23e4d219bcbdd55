/* SPDX-License-Identifier: MIT
 * One file's bytes, wherever they come from: mapped from disk, in the caller's memory, or copied
 * through a reader.  Everything above parses a span of bytes and never touches the file system. */
#ifndef QUERN_FORMATS_FILE_H
#define QUERN_FORMATS_FILE_H

#include <stdbool.h>
#include <quern/host.h>

struct qrn_file {
    const uint8_t *bytes;
    size_t n_bytes;
    /* how to give it back; private to file.c */
    int origin;
    void *handle;
    const struct qrn_source *source;
    struct qrn_allocator allocator;
};

/* Maps path read-only.  Errors: QRN_ERR_IO. */
enum qrn_status qrn_file_open(const char *path, const struct qrn_host *host, struct qrn_file *file,
                              struct qrn_error *err);

/* Opens name in source: in place where source->map gives a pointer, else into memory of ours.
 * source must outlive the file.  Errors: what the source returns, QRN_ERR_MEMORY. */
enum qrn_status qrn_file_open_source(const struct qrn_source *source, const char *name,
                                     const struct qrn_host *host, struct qrn_file *file,
                                     struct qrn_error *err);

/* The system may forget that the bytes from..from + n are in memory (mapped files only): they count
 * no more for this process, and are read again when touched.  from need not lie in this file: false
 * then. */
bool qrn_file_release(const struct qrn_file *file, const void *from, size_t n);
/* They will be read soon. */
bool qrn_file_prefetch(const struct qrn_file *file, const void *from, size_t n);

void qrn_file_close(struct qrn_file *file); /* zeroed structs are allowed */

#endif
