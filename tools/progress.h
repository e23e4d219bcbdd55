/* SPDX-License-Identifier: MIT
 * One line on standard error that grows while something takes long: only on a terminal, and only
 * after a moment, so that what is quick shows nothing. */
#ifndef QUERN_TOOLS_PROGRESS_H
#define QUERN_TOOLS_PROGRESS_H

#include <stdbool.h>

void progress_begin(const char *label);
/* 0 <= done <= 1; text, which may be NULL, stands behind the bar. */
void progress_show(double done, const char *text);
/* Takes the line away; nothing happens if there is none. */
void progress_end(void);

/* A qrn_progress_fn: shows, and goes on until interrupted. */
bool progress_step(void *user, double done);

#endif
