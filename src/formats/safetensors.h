/* SPDX-License-Identifier: MIT
 * safetensors: single files and sharded sets; reading and writing. */
#ifndef QUERN_FORMATS_SAFETENSORS_H
#define QUERN_FORMATS_SAFETENSORS_H

#include "formats/archive.h"
#include "formats/file.h"

struct qrn_safetensors {
    struct qrn_archive archive;
    struct qrn_file *files;
    size_t n_files;
    struct qrn_allocator allocator;
};

/* One file.  Names of unknown dtypes are listed with QRN_DTYPE_COUNT.
 * Errors: QRN_ERR_IO, QRN_ERR_FORMAT, QRN_ERR_MEMORY. */
enum qrn_status qrn_safetensors_open(const char *path, const struct qrn_source *source,
                                     const struct qrn_host *host, struct qrn_safetensors *st,
                                     struct qrn_error *err);

/* A directory: model.safetensors.index.json and its shards if there is one, else
 * model.safetensors.  With source, dir is ignored and names are asked of the source.  Shard names
 * must be plain file names; every tensor of the index must be in the shard it names. */
enum qrn_status qrn_safetensors_open_dir(const char *dir, const struct qrn_source *source,
                                         const struct qrn_host *host, struct qrn_safetensors *st,
                                         struct qrn_error *err);
void qrn_safetensors_close(struct qrn_safetensors *st); /* zeroed structs are allowed */

/* Writes a file of contiguous tensors (name, dtype, shape, data of struct qrn_archive_tensor), in
 * the order given, header padded to 8 bytes. */
enum qrn_status qrn_safetensors_write(const char *path, const struct qrn_archive_tensor *tensors,
                                      size_t n_tensors, const struct qrn_host *host,
                                      struct qrn_error *err);

#endif
