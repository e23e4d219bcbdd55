/* SPDX-License-Identifier: MIT
 * Named tensors of one or more files, whatever the container: what gguf.c and safetensors.c fill
 * and what the model reads. */
#ifndef QUERN_FORMATS_ARCHIVE_H
#define QUERN_FORMATS_ARCHIVE_H

#include <stdbool.h>
#include <quern/dtype.h>
#include <quern/host.h>

#define QRN_ARCHIVE_MAX_DIMS 8

struct qrn_archive_tensor {
    const char *name;      /* owned by the archive, NUL-terminated */
    enum qrn_dtype dtype;  /* QRN_DTYPE_COUNT: a type that we know by name at most; see type_name */
    const char *type_name; /* as the file says it: "q4_0", "F8_E4M3", "type 77" */
    int n_dims;
    int64_t shape[QRN_ARCHIVE_MAX_DIMS]; /* outermost first, whatever the file's order */
    const uint8_t *data;                 /* not aligned in general; inside one of the files */
    size_t n_bytes;
    int i_file; /* which of the files of a split or sharded set */
};

struct qrn_archive {
    struct qrn_archive_tensor *tensors; /* sorted by name */
    size_t n_tensors;
    size_t n_reserved;            /* private */
    struct qrn_name_block *names; /* private */
    struct qrn_allocator allocator;
};

void qrn_archive_init(struct qrn_archive *archive, const struct qrn_host *host);
void qrn_archive_free(struct qrn_archive *archive);

/* Makes room for n_more tensors at once. */
enum qrn_status qrn_archive_reserve(struct qrn_archive *archive, size_t n_more,
                                    struct qrn_error *err);

/* A copy of n bytes with a NUL behind them, which lives as long as the archive; NULL: no memory. */
const char *qrn_archive_text(struct qrn_archive *archive, const char *bytes, size_t n);

/* Appends a tensor; name (n_name bytes) is copied, dims and data are not checked here. */
enum qrn_status qrn_archive_add(struct qrn_archive *archive, const char *name, size_t n_name,
                                const struct qrn_archive_tensor *tensor, struct qrn_error *err);

/* Orders the tensors from index first on by address, for a walk over what lies where. */
void qrn_archive_order_by_data(struct qrn_archive *archive, size_t first);

/* Sorts; QRN_ERR_FORMAT if a name occurs twice.  Call once, before any find. */
enum qrn_status qrn_archive_sort(struct qrn_archive *archive, struct qrn_error *err);

/* NULL if there is none.  Any thread once sorted. */
const struct qrn_archive_tensor *qrn_archive_find(const struct qrn_archive *archive,
                                                  const char *name);

#endif
