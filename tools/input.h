/* SPDX-License-Identifier: MIT
 * What comes in: whole files, standard input. */
#ifndef QUERN_TOOLS_INPUT_H
#define QUERN_TOOLS_INPUT_H

#include <stddef.h>

/* All bytes of a file, "-": of standard input; a NUL behind them; freed with free().  EXIT_OK, or
 * EXIT_FAILED after a line on standard error. */
int read_file(const char *path, char **out, size_t *n_out);

/* "standard input" for "-". */
const char *input_name(const char *path);

#endif
