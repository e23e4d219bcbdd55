/* SPDX-License-Identifier: MIT
 * A reader of safetensors for tests, apart from the library's own. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "support/tensor_file.h"

void tensor_file_open(const char *path, struct tensor_file *file)
{
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("%s: cannot be opened", path);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    const long n = ftell(f);
    assert_true(n >= 8);
    rewind(f);
    file->n_bytes = (size_t)n;
    file->bytes = malloc(file->n_bytes);
    assert_non_null(file->bytes);
    assert_int_equal(fread(file->bytes, 1, file->n_bytes, f), file->n_bytes);
    fclose(f);
    uint64_t n_header = 0;
    for (int i = 0; i < 8; i++) n_header |= (uint64_t)file->bytes[i] << 8 * i;
    assert_true(n_header <= file->n_bytes - 8);
    file->header = json_loadb((const char *)file->bytes + 8, (size_t)n_header, 0, NULL);
    assert_non_null(file->header);
    json_object_del(file->header, "__metadata__");
}

void tensor_file_close(struct tensor_file *file)
{
    json_decref(file->header);
    free(file->bytes);
}

const uint8_t *tensor_file_find(const struct tensor_file *file, const char *name, size_t *n_bytes)
{
    const json_t *offsets = json_object_get(json_object_get(file->header, name), "data_offsets");
    if (!offsets) return NULL;
    uint64_t n_header = 0;
    for (int i = 0; i < 8; i++) n_header |= (uint64_t)file->bytes[i] << 8 * i;
    const size_t begin = (size_t)json_integer_value(json_array_get(offsets, 0));
    const size_t end = (size_t)json_integer_value(json_array_get(offsets, 1));
    assert_true(begin <= end && end <= file->n_bytes - 8 - n_header);
    *n_bytes = end - begin;
    return file->bytes + 8 + n_header + begin;
}
