/* SPDX-License-Identifier: MIT
 * What lies in the files of a model, whether or not it can be run. */
#ifndef QUERN_TOOLS_LISTING_H
#define QUERN_TOOLS_LISTING_H

#include "formats/gguf.h"
#include "formats/safetensors.h"

struct listing {
    bool is_gguf;
    struct qrn_gguf gguf;
    struct qrn_safetensors safetensors;
    const struct qrn_archive *archive; /* the tensors of either */
    size_t n_files;
    uint64_t file_bytes;
};

/* Opens a .gguf file, a .safetensors file or a directory of these.  Errors: as the formats. */
enum qrn_status listing_open(const char *path, const struct qrn_host *host, struct listing *out,
                             struct qrn_error *err);
void listing_close(struct listing *listing); /* zeroed structs are allowed */

/* What all tensors of one type take together. */
struct type_total {
    const char *name;
    size_t n_tensors;
    double n_elements;
    uint64_t n_bytes;
};

/* Totals by type, the largest first; freed with free().  NULL: no memory. */
struct type_total *listing_types(const struct listing *listing, size_t *n_out);

/* Bytes of all tensors. */
uint64_t listing_tensor_bytes(const struct listing *listing);

/* "Q4_K_M" where a GGUF file says so, else NULL. */
const char *listing_file_type(const struct listing *listing);

double tensor_elements(const struct qrn_archive_tensor *tensor);

#endif
