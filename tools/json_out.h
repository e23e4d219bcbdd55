/* SPDX-License-Identifier: MIT
 * JSON on standard output. */
#ifndef QUERN_TOOLS_JSON_OUT_H
#define QUERN_TOOLS_JSON_OUT_H

#include <jansson.h>

/* Prints value, indented, with a newline, and drops it.  NULL: there was no memory for it.
 * EXIT_OK, or EXIT_FAILED after a line on standard error. */
int json_out(json_t *value);

#endif
