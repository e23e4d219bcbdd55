/* SPDX-License-Identifier: MIT
 * The files of a model, opened and recognised: GGUF, or a directory of Hugging Face or MLX. */
#ifndef QUERN_MODEL_FILES_H
#define QUERN_MODEL_FILES_H

#include <quern/model.h>
#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "model/config.h"

enum qrn_model_format { QRN_FORMAT_GGUF, QRN_FORMAT_SAFETENSORS, QRN_FORMAT_MLX };

struct qrn_model_files {
    enum qrn_model_format format;
    struct qrn_gguf gguf;               /* of GGUF */
    struct qrn_safetensors safetensors; /* of the others */
    const struct qrn_archive *archive;  /* the tensors of either */
    struct qrn_model_config config;
    struct qrn_tokenizer *tokenizer; /* NULL: the files hold none */
};

/* Opens what options name and reads the config.  Errors: as qrn_model_open. */
enum qrn_status qrn_model_files_open(const struct qrn_model_options *options,
                                     struct qrn_model_files *files, struct qrn_error *err);
/* Bytes of any of the files, as qrn_file_release and qrn_file_prefetch. */
void qrn_model_files_release(const struct qrn_model_files *files, const void *from, size_t n);
void qrn_model_files_prefetch(const struct qrn_model_files *files, const void *from, size_t n);
/* All bytes of all files. */
void qrn_model_files_release_all(const struct qrn_model_files *files);

void qrn_model_files_close(struct qrn_model_files *files); /* zeroed structs are allowed */

#endif
