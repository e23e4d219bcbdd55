/* SPDX-License-Identifier: MIT
 * Help as text of 80 columns. */
#include "help.h"

#include <string.h>

#define COLUMNS 80
#define OPTION_INDENT 26

/* Prints words that begin at column at, with line breaks before COLUMNS; ends the line. */
static void print_wrapped(FILE *out, const char *text, size_t n_text, int at, int indent)
{
    const char *end = text + n_text;
    bool first = true;
    while (text < end) {
        const size_t n = strcspn(text, " \n");
        const size_t n_word = n < (size_t)(end - text) ? n : (size_t)(end - text);
        if (!first && at + 1 + (int)n_word > COLUMNS) {
            fprintf(out, "\n%*s", indent, "");
            at = indent;
            first = true;
        }
        at += fprintf(out, "%s%.*s", first ? "" : " ", (int)n_word, text);
        first = false;
        text += n_word + (text + n_word < end);
    }
    fputc('\n', out);
}

void help_option_form(const struct option_row *row, char *out, size_t n_out)
{
    char letter[8] = "";
    if (row->letter) snprintf(letter, sizeof letter, "-%c, ", row->letter);
    snprintf(out, n_out, "%s--%s%s%s", letter, row->name, row->value ? " " : "",
             row->value ? row->value : "");
}

void help_option_text(const struct option_row *row, char *out, size_t n_out)
{
    char variable[64] = "";
    if (row->env) option_variable(row, variable, sizeof variable);
    const bool both = row->preset && row->env;
    const char *open = row->preset || row->env ? " [" : "", *close = *open ? "]" : "";
    snprintf(out, n_out, "%s%s%s%s%s%s", row->help, open, row->preset ? row->preset : "",
             both ? "; " : "", variable, close);
}

static void print_options(const struct command *command, FILE *out)
{
    fputs("\nOptions:\n", out);
    const struct option_row *row;
    for (size_t i = 0; (row = option_at(i)); i++) {
        if (!option_of(row, command)) continue;
        char form[80], text[400];
        help_option_form(row, form, sizeof form);
        help_option_text(row, text, sizeof text);
        int at = fprintf(out, "  %s%s", row->letter ? "" : "    ", form);
        if (at > OPTION_INDENT - 2) {
            fputc('\n', out);
            at = 0;
        }
        fprintf(out, "%*s", OPTION_INDENT - at, "");
        print_wrapped(out, text, strlen(text), OPTION_INDENT, OPTION_INDENT);
    }
    fputs("\nIn brackets: the default, and the environment variable that sets the option.\n", out);
}

/* Paragraphs with a blank line between; lines that begin with four spaces as they are. */
static void print_text(const char *text, FILE *out)
{
    bool was_code = false;
    for (const char *line = text; *line;) {
        const size_t n = strcspn(line, "\n");
        const bool code = strncmp(line, "    ", 4) == 0;
        if (line != text && !(code && was_code)) fputc('\n', out);
        if (code) {
            fprintf(out, "%.*s\n", (int)n, line);
        } else {
            print_wrapped(out, line, n, 0, 0);
        }
        was_code = code;
        line += n + (line[n] == '\n');
    }
}

void help_command(const struct command *command, FILE *out)
{
    fprintf(out, "quern %s: %s\n\nUsage: quern %s [options]%s%s\n\n", command->name,
            command->summary, command->name, *command->arguments ? " " : "", command->arguments);
    print_text(command->text, out);
    print_options(command, out);
}

void help_overview(FILE *out)
{
    fputs("Usage: quern COMMAND [options] [arguments]\n\n"
          "Runs language models that mix Gated DeltaNet layers with attention.\n\n"
          "Commands:\n",
          out);
    const struct command *command;
    for (size_t i = 0; (command = command_at(i)); i++)
        fprintf(out, "  %-12s%s\n", command->name, command->summary);
    fputs("\nquern help COMMAND shows a command's options; quern --version the version.\n"
          "To begin with: quern run\n",
          out);
}
