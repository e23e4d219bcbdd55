/* SPDX-License-Identifier: MIT
 * Parsing one GGUF file; private to the files gguf*.c. */
#ifndef QUERN_FORMATS_GGUF_READ_H
#define QUERN_FORMATS_GGUF_READ_H

#include "formats/gguf.h"
#include "formats/reader.h"

#define QRN_GGUF_MAX_NAME 64 /* with a NUL; ggml's limit */
#define QRN_GGUF_MAX_DIMS 4  /* ggml's limit */
/* In a set; far above any model.  It bounds what files of nothing but entries make us allocate. */
#define QRN_GGUF_MAX_TENSORS ((uint64_t)1 << 18)

/* Bytes of a scalar of that type; 0 for strings and arrays. */
size_t qrn_gguf_scalar_bytes(enum qrn_gguf_type type);

/* Reads a scalar of v->type into v->as. */
void qrn_gguf_read_scalar(struct qrn_reader *r, struct qrn_gguf_value *v);

/* One file of a set, between its metadata and its tensors. */
struct qrn_gguf_part {
    struct qrn_gguf_value *values; /* sorted by key */
    size_t n_values, n_tensors;
    size_t alignment;
    struct qrn_reader infos; /* where the list of tensors starts */
};

enum qrn_status qrn_gguf_read_metadata(const struct qrn_file *file,
                                       const struct qrn_allocator *allocator,
                                       struct qrn_gguf_part *part, struct qrn_error *err);
/* Frees the values; what the tensors need stays. */
void qrn_gguf_part_free(struct qrn_gguf_part *part, const struct qrn_allocator *allocator);

/* The value of a key, or NULL. */
const struct qrn_gguf_value *qrn_gguf_part_find(const struct qrn_gguf_part *part, const char *key);

/* Appends the part's tensors to the archive. */
enum qrn_status qrn_gguf_read_tensors(const struct qrn_file *file, struct qrn_gguf_part *part,
                                      int i_file, struct qrn_archive *archive,
                                      struct qrn_error *err);

#endif
