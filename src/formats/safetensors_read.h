/* SPDX-License-Identifier: MIT
 * Parts of the safetensors reader; private to the files safetensors*.c. */
#ifndef QUERN_FORMATS_SAFETENSORS_READ_H
#define QUERN_FORMATS_SAFETENSORS_READ_H

#include "formats/safetensors.h"

/* "BF16"; NULL if the format has no such type. */
const char *qrn_safetensors_dtype_name(enum qrn_dtype dtype);

/* Opens st->files[i], by name in the source or by path, and appends its tensors. */
enum qrn_status qrn_safetensors_add_file(struct qrn_safetensors *st, size_t i, const char *path,
                                         const struct qrn_source *source,
                                         const struct qrn_host *host, struct qrn_error *err);

#endif
