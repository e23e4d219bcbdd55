/* SPDX-License-Identifier: MIT
 * Runs the program that was built beside the tests, and keeps what it says. */
#ifndef TESTS_TOOLS_RUN_PROGRAM_H
#define TESTS_TOOLS_RUN_PROGRAM_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_WORDS 32

struct outcome {
    int status;      /* exit status, or 128 + signal */
    char *out, *err; /* NUL-terminated; freed by outcome_free */
    size_t n_out;
};

/* $QUERN, else quern in the build folder that this test program is in. */
static const char *program_path(void)
{
    static char path[4096];
    const char *given = getenv("QUERN");
    if (given) return given;
    const ssize_t n = readlink("/proc/self/exe", path, sizeof path - 64);
    assert_true(n > 0);
    path[n] = '\0';
    for (int up = 0; up < 3; up++) *strrchr(path, '/') = '\0'; /* tests/tools/test_... */
    strcat(path, "/quern");
    return path;
}

static char *read_stream(FILE *file, size_t *n_out)
{
    fseek(file, 0, SEEK_END);
    const size_t n = (size_t)ftell(file);
    rewind(file);
    char *text = malloc(n + 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, n, file), n);
    text[n] = '\0';
    *n_out = n;
    fclose(file);
    return text;
}

/* Starts it with files as its three streams; variable, which may be NULL, is NAME=VALUE. */
static pid_t start_program(char *const *words, int in, int out, int err, const char *variable)
{
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child > 0) return child;
    dup2(in, 0);
    dup2(out, 1);
    dup2(err, 2);
    if (variable) putenv(strdup(variable));
    execv(program_path(), words);
    _exit(127);
}

/* words: what follows the program's name, NULL at the end; input: standard input, may be NULL. */
static struct outcome run_words(const char *const *words, const char *input, const char *variable)
{
    char *argv[MAX_WORDS + 2] = {strdup("quern")};
    int n = 1;
    for (; *words; words++, n++) {
        assert_true(n <= MAX_WORDS);
        argv[n] = strdup(*words);
    }
    FILE *in = tmpfile(), *out = tmpfile(), *err = tmpfile();
    assert_true(in && out && err);
    if (input) fputs(input, in);
    rewind(in);
    const pid_t child = start_program(argv, fileno(in), fileno(out), fileno(err), variable);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    struct outcome o = {.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status)};
    size_t n_err;
    o.out = read_stream(out, &o.n_out);
    o.err = read_stream(err, &n_err);
    fclose(in);
    while (n > 0) free(argv[--n]);
    return o;
}

#define RUN(...)                   run_words((const char *const[]){__VA_ARGS__, NULL}, NULL, NULL)
#define RUN_WITH_INPUT(input, ...) run_words((const char *const[]){__VA_ARGS__, NULL}, input, NULL)
#define RUN_WITH_VARIABLE(variable, ...) \
    run_words((const char *const[]){__VA_ARGS__, NULL}, NULL, variable)

static inline void outcome_free(struct outcome *o)
{
    free(o->out);
    free(o->err);
}

/* The exit status is as wanted; if not, shows what the program said. */
static inline void expect_status(const struct outcome *o, int status)
{
    if (o->status != status)
        print_error("exit status %d, wants %d; it said: %s", o->status, status, o->err);
    assert_int_equal(o->status, status);
}

static inline void expect_text(const char *text, const char *part)
{
    if (!strstr(text, part)) print_error("\"%s\" is not in: %s\n", part, text);
    assert_non_null(strstr(text, part));
}

static inline size_t count_lines(const char *text)
{
    size_t n = 0;
    for (; *text; text++) n += *text == '\n';
    return n;
}

#endif
