/* SPDX-License-Identifier: MIT
 * A file being written: it gets its name when it is complete, and is removed otherwise. */
#ifndef QUERN_FORMATS_OUTPUT_H
#define QUERN_FORMATS_OUTPUT_H

#include <stdio.h>
#include <quern/host.h>

struct qrn_output {
    FILE *file;
    char *path, *part; /* written as part, then renamed to path */
    enum qrn_status status;
    struct qrn_error error; /* the first failure, if status is not QRN_OK */
    struct qrn_allocator allocator;
};

/* A path that is no regular file (a device, a pipe) is written directly.  Errors: QRN_ERR_IO,
 * QRN_ERR_MEMORY. */
enum qrn_status qrn_output_open(struct qrn_output *out, const char *path,
                                const struct qrn_host *host, struct qrn_error *err);
/* Nothing happens after a failure. */
void qrn_output_write(struct qrn_output *out, const void *bytes, size_t n_bytes);
void qrn_output_zeros(struct qrn_output *out, size_t n_bytes);
/* Keeps the file if all went well, removes it otherwise; frees. */
enum qrn_status qrn_output_finish(struct qrn_output *out, struct qrn_error *err);

#endif
