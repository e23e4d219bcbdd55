/* SPDX-License-Identifier: MIT
 * Commands and their options: the tables of commands.inc and options.inc, and parsing. */
#ifndef QUERN_TOOLS_OPTIONS_H
#define QUERN_TOOLS_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MAX_ARGUMENTS 3
#define MAX_LIST 32

struct text_list {
    const char *at[MAX_LIST];
    size_t n;
};

struct int_list {
    int64_t at[MAX_LIST];
    size_t n;
};

/* The values of an option table row, in the order of the choices. */
enum { FORMAT_MD, FORMAT_JSON, FORMAT_CSV };
enum { KV_AUTO, KV_F16, KV_F32 };
enum { COMPLETION_NONE, COMPLETION_BASH, COMPLETION_ZSH };

/* What the command line and the environment say: a field for each row of options.inc. */
struct options {
    const struct command *command;
    const char *arguments[MAX_ARGUMENTS];
    int n_arguments;
#define TYPE_FLAG bool
#define TYPE_INT int64_t
#define TYPE_REAL double
#define TYPE_TEXT const char *
#define TYPE_TEXTS struct text_list
#define TYPE_INTS struct int_list
#define TYPE_CHOICE int
#define OPTION(kind, field, ...) TYPE_##kind field;
#include "options.inc"
#undef OPTION
};

enum command_id {
#define COMMAND(name, ...) COMMAND_##name,
#include "commands.inc"
#undef COMMAND
    COMMAND_COUNT
};

struct command {
    const char *name;
    const char *arguments; /* as usage shows them */
    int fewest, most;      /* arguments */
    const char *summary, *text;
    int (*run)(const struct options *options); /* returns the exit status */
};

#define COMMAND(name, ...) int cmd_##name(const struct options *options);
#include "commands.inc"
#undef COMMAND

enum option_kind {
    OPTION_FLAG,
    OPTION_INT,
    OPTION_REAL,
    OPTION_TEXT,
    OPTION_TEXTS,
    OPTION_INTS,
    OPTION_CHOICE
};

struct option_row {
    enum option_kind kind;
    size_t offset; /* of the field in struct options */
    char letter;   /* 0: none */
    const char *name, *value, *preset;
    double least, most;
    bool env;
    unsigned commands; /* bit 1 << command_id */
    const char *help;
};

/* NULL past the end. */
const struct command *command_at(size_t i);
const struct command *command_find(const char *name);
const struct option_row *option_at(size_t i);
bool option_of(const struct option_row *row, const struct command *command);

/* "QUERN_TOP_K" for top-k. */
void option_variable(const struct option_row *row, char *out, size_t n_out);

/* Fills options for a command: presets, then the environment, then the words of the command line
 * behind the command's name.  False after a line on standard error. */
bool options_parse(const struct command *command, int n_words, char **words,
                   struct options *options);

#endif
