/* SPDX-License-Identifier: MIT
 * Files of a test: a folder of its own, removed at the end of the program. */
#ifndef TESTS_SUPPORT_TEMP_H
#define TESTS_SUPPORT_TEMP_H

#include <stddef.h>

/* A path for that name in the folder; valid until eight further calls. */
const char *temp_path(const char *name);

/* Writes a file there and returns its path. */
const char *temp_file(const char *name, const void *bytes, size_t n_bytes);

/* All bytes of a file, malloced, with a NUL behind; NULL if it cannot be read. */
void *read_file(const char *path, size_t *n_bytes);

#endif
