/* SPDX-License-Identifier: MIT
 * Tensors of a safetensors file, read the plain way for tests; files are trusted. */
#ifndef TESTS_SUPPORT_TENSOR_FILE_H
#define TESTS_SUPPORT_TENSOR_FILE_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

struct tensor_file {
    uint8_t *bytes;
    size_t n_bytes;
    json_t *header; /* name -> {"dtype", "shape", "data_offsets"}; no __metadata__ */
};

/* Ends the test if the file cannot be read. */
void tensor_file_open(const char *path, struct tensor_file *file);
void tensor_file_close(struct tensor_file *file);

/* The bytes of a tensor, on no particular boundary; NULL if there is none of that name. */
const uint8_t *tensor_file_find(const struct tensor_file *file, const char *name, size_t *n_bytes);

#endif
