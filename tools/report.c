/* SPDX-License-Identifier: MIT
 * What the program says on standard error, and how it ends. */
#include "report.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "progress.h"

static volatile sig_atomic_t was_interrupted;

int fail(const char *format, ...)
{
    progress_end();
    va_list args;
    va_start(args, format);
    fputs("quern: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    return EXIT_FAILED;
}

int fail_with(const struct qrn_error *err)
{
    if (err->status == QRN_ERR_CANCELLED && was_interrupted) {
        progress_end();
        return EXIT_INTERRUPTED;
    }
    return fail("%s", err->text);
}

int fail_usage(const char *command, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "quern%s%s: ", command ? " " : "", command ? command : "");
    vfprintf(stderr, format, args);
    fprintf(stderr, " (see quern help%s%s)\n", command ? " " : "", command ? command : "");
    va_end(args);
    return EXIT_USAGE;
}

int finish_output(void)
{
    if (fflush(stdout) == 0 && !ferror(stdout)) return EXIT_OK;
    return fail("standard output: %s", strerror(errno));
}

static void write_line(void *user, enum qrn_log_level level, const char *line)
{
    (void)user;
    static const char *const names[] = {"error", "warning", "info", "debug"};
    progress_end();
    fprintf(stderr, "quern: %s: %s\n", names[level], line);
}

struct qrn_logger report_logger(bool verbose)
{
    return (struct qrn_logger){.write = write_line,
                               .level = verbose ? QRN_LOG_DEBUG : QRN_LOG_WARNING};
}

static void note_interrupt(int signal_number)
{
    (void)signal_number;
    was_interrupted = 1;
}

void catch_interrupt(void)
{
    struct sigaction action = {.sa_handler = note_interrupt, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
}

bool interrupted(void)
{
    return was_interrupted != 0;
}

bool interrupt_requested(void *user)
{
    (void)user;
    return was_interrupted != 0;
}
