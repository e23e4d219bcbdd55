/* SPDX-License-Identifier: MIT
 * The tables of commands and options, and parsing. */
#include "options.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"

static const struct command commands[] = {
#define COMMAND(name, arguments, fewest, most, summary, text) \
    {#name, arguments, fewest, most, summary, text, cmd_##name},
#include "commands.inc"
#undef COMMAND
};

#define ON(command) (1u << COMMAND_##command)
#define EVERY ((1u << COMMAND_COUNT) - 1)

static const struct option_row rows[] = {
#define OPTION(kind, field, ...) {OPTION_##kind, offsetof(struct options, field), __VA_ARGS__},
#include "options.inc"
#undef OPTION
};

const struct command *command_at(size_t i)
{
    return i < COMMAND_COUNT ? &commands[i] : NULL;
}

const struct command *command_find(const char *name)
{
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        if (strcmp(commands[i].name, name) == 0) return &commands[i];
    return NULL;
}

const struct option_row *option_at(size_t i)
{
    return i < sizeof rows / sizeof *rows ? &rows[i] : NULL;
}

bool option_of(const struct option_row *row, const struct command *command)
{
    return row->commands >> (command - commands) & 1;
}

void option_variable(const struct option_row *row, char *out, size_t n_out)
{
    snprintf(out, n_out, "QUERN_%s", row->name);
    for (char *c = out; *c; c++) *c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
}

static const struct option_row *row_of_name(const struct command *command, const char *name,
                                            size_t n_name)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (option_of(&rows[i], command) && strlen(rows[i].name) == n_name &&
            memcmp(rows[i].name, name, n_name) == 0)
            return &rows[i];
    return NULL;
}

static const struct option_row *row_of_letter(const struct command *command, char letter)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (option_of(&rows[i], command) && rows[i].letter == letter) return &rows[i];
    return NULL;
}

/* --- values: each returns false if the text is not one --- */

static bool parse_flag(const char *text, bool *out)
{
    static const char *const words[] = {"0", "1", "off", "on", "no", "yes", "false", "true"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(text, words[i]) == 0) {
            *out = i % 2;
            return true;
        }
    return false;
}

static bool in_range(const struct option_row *row, double value)
{
    return value >= row->least && value <= row->most;
}

/* A whole number at text; *end is what follows it. */
static bool parse_int(const struct option_row *row, const char *text, const char **end,
                      int64_t *out)
{
    if (isspace((unsigned char)*text)) return false;
    char *after;
    errno = 0;
    const intmax_t value = strtoimax(text, &after, 10);
    if (after == text || errno || !in_range(row, (double)value)) return false;
    *out = (int64_t)value;
    *end = after;
    return true;
}

static bool parse_real(const struct option_row *row, const char *text, double *out)
{
    char *end;
    const double value = strtod(text, &end);
    if (end == text || *end || isspace((unsigned char)*text) || !in_range(row, value)) return false;
    *out = value;
    return true;
}

static bool parse_ints(const struct option_row *row, const char *text, struct int_list *out)
{
    struct int_list list = {.n = 0};
    while (list.n < MAX_LIST && parse_int(row, text, &text, &list.at[list.n])) {
        list.n++;
        if (*text == '\0') {
            *out = list;
            return true;
        }
        if (*text++ != ',') return false;
    }
    return false;
}

static bool parse_choice(const struct option_row *row, const char *text, int *out)
{
    const size_t n = strlen(text);
    int i = 0;
    for (const char *at = row->value; at; i++) {
        const char *end = strchr(at, '|');
        const size_t n_at = end ? (size_t)(end - at) : strlen(at);
        if (n == n_at && memcmp(at, text, n) == 0) {
            *out = i;
            return true;
        }
        at = end ? end + 1 : NULL;
    }
    return false;
}

static bool set_value(const struct option_row *row, const char *text, struct options *options)
{
    void *field = (char *)options + row->offset;
    const char *end;
    switch (row->kind) {
    case OPTION_FLAG: return parse_flag(text, field);
    case OPTION_INT: return parse_int(row, text, &end, field) && *end == '\0';
    case OPTION_REAL: return parse_real(row, text, field);
    case OPTION_INTS: return parse_ints(row, text, field);
    case OPTION_CHOICE: return parse_choice(row, text, field);
    case OPTION_TEXT: *(const char **)field = text; return true;
    case OPTION_TEXTS: {
        struct text_list *list = field;
        if (list->n == MAX_LIST || *text == '\0') return false;
        list->at[list->n++] = text;
        return true;
    }
    }
    return false;
}

/* What would have been right: "a whole number of 0 or more". */
static void describe(const struct option_row *row, char *out, size_t n_out)
{
    char range[64] = "";
    if (row->most >= 1e7) {
        snprintf(range, sizeof range, " of %g or more", row->least);
    } else {
        snprintf(range, sizeof range, " from %g to %g", row->least, row->most);
    }
    switch (row->kind) {
    case OPTION_FLAG: snprintf(out, n_out, "0 or 1"); break;
    case OPTION_INT: snprintf(out, n_out, "a whole number%s", range); break;
    case OPTION_REAL: snprintf(out, n_out, "a number%s", range); break;
    case OPTION_INTS:
        snprintf(out, n_out, "up to %d whole numbers%s, with commas between", MAX_LIST, range);
        break;
    case OPTION_TEXT: snprintf(out, n_out, "a text"); break;
    case OPTION_TEXTS:
        snprintf(out, n_out, "a text that is not empty, %d times at most", MAX_LIST);
        break;
    case OPTION_CHOICE: snprintf(out, n_out, "one of %s", row->value); break;
    }
}

static bool set_or_say(const struct option_row *row, const char *source, const char *text,
                       struct options *options)
{
    if (set_value(row, text, options)) return true;
    char wish[120];
    describe(row, wish, sizeof wish);
    fail_usage(options->command->name, "%s wants %s, not \"%s\"", source, wish, text);
    return false;
}

/* --- the command line --- */

struct words {
    char **at;
    int n, next;
};

/* The option of that name that is nearest: shares the longest beginning, two letters at least. */
static const char *nearest(const struct command *command, const char *name, size_t n_name)
{
    const char *best = NULL;
    size_t n_best = 1;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!option_of(&rows[i], command)) continue;
        size_t n = 0;
        while (n < n_name && rows[i].name[n] && rows[i].name[n] == name[n]) n++;
        if (n > n_best) {
            n_best = n;
            best = rows[i].name;
        }
    }
    return best;
}

/* --name, --name=value, --name value, --no-name */
static bool parse_long(struct words *words, const char *word, struct options *options)
{
    const struct command *command = options->command;
    const char *name = word + 2, *value = strchr(word, '=');
    const size_t n_name = value ? (size_t)(value - name) : strlen(name);
    const struct option_row *row = row_of_name(command, name, n_name);
    bool negated = false;
    if (!row && strncmp(name, "no-", 3) == 0) {
        row = row_of_name(command, name + 3, n_name - 3);
        negated = row && row->kind == OPTION_FLAG && row->env;
        if (!negated) row = NULL;
    }
    if (!row) {
        const char *other = nearest(command, name, n_name);
        fail_usage(command->name, "unknown option %.*s%s%s%s", (int)n_name + 2, word,
                   other ? "; did you mean --" : "", other ? other : "", other ? "?" : "");
        return false;
    }
    if (row->kind == OPTION_FLAG) {
        if (!value) return set_value(row, negated ? "0" : "1", options);
        fail_usage(command->name, "%.*s takes no value", (int)n_name + 2, word);
        return false;
    }
    char source[64];
    snprintf(source, sizeof source, "--%s", row->name);
    if (value) return set_or_say(row, source, value + 1, options);
    if (words->next < words->n)
        return set_or_say(row, source, words->at[words->next++], options);
    fail_usage(command->name, "%s wants a value: %s %s", source, source, row->value);
    return false;
}

/* -n 5, -n5, flags together: -vh */
static bool parse_letters(struct words *words, const char *word, struct options *options)
{
    const struct command *command = options->command;
    for (const char *c = word + 1; *c; c++) {
        const struct option_row *row = row_of_letter(command, *c);
        const char source[] = {'-', *c, '\0'};
        if (!row) {
            fail_usage(command->name, "unknown option %s", source);
            return false;
        }
        if (row->kind == OPTION_FLAG) {
            if (!set_value(row, "1", options)) return false;
            continue;
        }
        if (c[1]) return set_or_say(row, source, c + 1, options);
        if (words->next < words->n)
            return set_or_say(row, source, words->at[words->next++], options);
        fail_usage(command->name, "%s wants a value: %s %s", source, source, row->value);
        return false;
    }
    return true;
}

static bool take_argument(const char *word, struct options *options)
{
    const struct command *command = options->command;
    if (options->n_arguments == command->most) {
        fail_usage(command->name, "unexpected argument \"%s\"", word);
        return false;
    }
    options->arguments[options->n_arguments++] = word;
    return true;
}

static bool take_presets(struct options *options)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct option_row *row = &rows[i];
        if (!option_of(row, options->command)) continue;
        if (row->preset && !set_or_say(row, row->name, row->preset, options)) return false;
    }
    return true;
}

static bool take_environment(struct options *options)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct option_row *row = &rows[i];
        if (!row->env || !option_of(row, options->command)) continue;
        char name[64];
        option_variable(row, name, sizeof name);
        const char *value = getenv(name);
        if (value && *value && !set_or_say(row, name, value, options)) return false;
    }
    return true;
}

bool options_parse(const struct command *command, int n_words, char **at, struct options *options)
{
    *options = (struct options){.command = command};
    if (!take_presets(options) || !take_environment(options)) return false;
    struct words words = {at, n_words, 0};
    bool only_arguments = false;
    while (words.next < words.n) {
        const char *word = words.at[words.next++];
        if (only_arguments || word[0] != '-' || word[1] == '\0') {
            if (!take_argument(word, options)) return false;
        } else if (word[1] != '-') {
            if (!parse_letters(&words, word, options)) return false;
        } else if (word[2] == '\0') {
            only_arguments = true;
        } else if (!parse_long(&words, word, options)) {
            return false;
        }
    }
    if (options->n_arguments < command->fewest && !options->help) {
        fail_usage(command->name, "wants %s", command->arguments);
        return false;
    }
    return true;
}
