/* SPDX-License-Identifier: MIT
 * The manual page, in the man macros of roff. */
#include "help.h"

#include <string.h>

#include <quern/version.h>

/* Text in which nothing is a request or an escape; plain minus signs. */
static void print_text(FILE *out, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if ((text[i] == '.' || text[i] == '\'') && (i == 0 || text[i - 1] == '\n'))
            fputs("\\&", out);
        if (text[i] == '\\') {
            fputs("\\e", out);
        } else if (text[i] == '-') {
            fputs("\\-", out);
        } else {
            fputc(text[i], out);
        }
    }
}

static void print_line(FILE *out, const char *text)
{
    print_text(out, text, strlen(text));
    fputc('\n', out);
}

static void print_command_text(FILE *out, const char *text)
{
    bool verbatim = false;
    for (const char *line = text; *line;) {
        const size_t n = strcspn(line, "\n");
        const bool code = strncmp(line, "    ", 4) == 0;
        if (code && !verbatim) fputs(".PP\n.nf\n.RS 4\n", out);
        if (!code && verbatim) fputs(".RE\n.fi\n", out);
        if (!code && line != text) fputs(".PP\n", out);
        verbatim = code;
        print_text(out, line + (code ? 4 : 0), n - (code ? 4 : 0));
        fputc('\n', out);
        line += n + (line[n] == '\n');
    }
    if (verbatim) fputs(".RE\n.fi\n", out);
}

static void print_command(FILE *out, const struct command *command)
{
    fprintf(out, ".SS quern %s %s\n", command->name, command->arguments);
    print_command_text(out, command->text);
    const struct option_row *row;
    for (size_t i = 0; (row = option_at(i)); i++) {
        if (!option_of(row, command)) continue;
        char form[80], text[400];
        help_option_form(row, form, sizeof form);
        help_option_text(row, text, sizeof text);
        fputs(".TP\n.B ", out);
        print_line(out, form);
        print_line(out, text);
    }
}

void help_man(FILE *out)
{
    fprintf(out, ".TH QUERN 1 \"\" \"quern %s\" \"User Commands\"\n", qrn_version());
    fputs(".SH NAME\n"
          "quern \\- run language models that mix Gated DeltaNet layers with attention\n"
          ".SH SYNOPSIS\n.B quern\n.I COMMAND\n[\\fIoptions\\fR] [\\fIarguments\\fR]\n"
          ".SH DESCRIPTION\n"
          "Options may stand anywhere behind the command. Values follow as another word or behind "
          "an equals sign; \\-\\- ends the options. In brackets stand an option's default and the "
          "environment variable that sets it, too; the command line counts more. A flag with a "
          "variable can be taken back with \\-\\-no\\-\\fIname\\fR.\n"
          ".SH COMMANDS\n",
          out);
    const struct command *command;
    for (size_t i = 0; (command = command_at(i)); i++) print_command(out, command);
    fputs(".SH EXIT STATUS\n"
          ".TP\n.B 0\nAll went well.\n"
          ".TP\n.B 1\nIt failed; one line on standard error says why.\n"
          ".TP\n.B 2\nThe command line is wrong; one line on standard error says how.\n"
          ".TP\n.B 130\nInterrupted from the keyboard.\n"
          ".SH ENVIRONMENT\n"
          "Besides those of the options:\n"
          ".TP\n.B QRN_CPU_DISABLE\n"
          "Comma-separated processor features not to use, such as avx512f.\n"
          ".TP\n.B QRN_KERNEL\n"
          "Comma-separated op=kernel pairs that override the choice of kernels.\n"
          ".TP\n.B QRN_CUDA_BLAS\n"
          "Path of NVIDIA's library cuBLASLt, for prompts with bf16 weights on a GPU; empty: none. "
          "Where it is not set the system's is used on GPUs that are faster by it.\n",
          out);
}
