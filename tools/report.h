/* SPDX-License-Identifier: MIT
 * What the program says on standard error, and how it ends. */
#ifndef QUERN_TOOLS_REPORT_H
#define QUERN_TOOLS_REPORT_H

#include <stdbool.h>
#include <quern/host.h>
#include "base/error.h"

enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_INTERRUPTED = 130 };

/* One line, "quern: ..."; returns EXIT_FAILED. */
int fail(const char *format, ...) QRN_PRINTF(1, 2);

/* The line of a failed call; EXIT_FAILED, or EXIT_INTERRUPTED without a line if that was why. */
int fail_with(const struct qrn_error *err);

/* One line, "quern COMMAND: ... (see quern help COMMAND)"; EXIT_USAGE.  command may be NULL. */
int fail_usage(const char *command, const char *format, ...) QRN_PRINTF(2, 3);

/* Ends standard output: EXIT_OK, or EXIT_FAILED after a line if it could not be written. */
int finish_output(void);

/* A log that writes warnings, and with verbose everything, as lines like those above. */
struct qrn_logger report_logger(bool verbose);

/* From now on the first interrupt from the keyboard is only noted; the second ends the program. */
void catch_interrupt(void);
bool interrupted(void);
bool interrupt_requested(void *user); /* the same, as a qrn_cancel_fn */

#endif
