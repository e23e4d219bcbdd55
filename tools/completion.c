/* SPDX-License-Identifier: MIT
 * Completion scripts for bash and zsh. */
#include "help.h"

#include <string.h>

/* The options of a command as words: "--threads -t --kv". */
static void print_words(FILE *out, const struct command *command)
{
    const struct option_row *row;
    for (size_t i = 0; (row = option_at(i)); i++) {
        if (!option_of(row, command)) continue;
        fprintf(out, "--%s ", row->name);
        if (row->letter) fprintf(out, "-%c ", row->letter);
    }
}

static bool is_file(const struct option_row *row)
{
    return row->value && (strcmp(row->value, "FILE") == 0 || strcmp(row->value, "PATH") == 0);
}

/* case arms of bash: what may follow an option of the command */
static void print_values(FILE *out, const struct command *command)
{
    const struct option_row *row;
    for (size_t i = 0; (row = option_at(i)); i++) {
        if (!option_of(row, command) || row->kind == OPTION_FLAG) continue;
        fprintf(out, "    %s,--%s", command->name, row->name);
        if (row->letter) fprintf(out, "|%s,-%c", command->name, row->letter);
        if (is_file(row)) {
            fputs(") compopt -o default; return;;\n", out);
            continue;
        }
        fputs(") COMPREPLY=($(compgen -W \"", out);
        if (row->kind == OPTION_CHOICE)
            for (const char *c = row->value; *c; c++) fputc(*c == '|' ? ' ' : *c, out);
        fputs("\" -- \"$word\")); return;;\n", out);
    }
}

void help_completion_bash(FILE *out)
{
    const struct command *command;
    fputs("# bash completion of quern, written by: quern help --completion bash\n"
          "_quern() {\n"
          "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}\n"
          "    local command=${COMP_WORDS[1]} words=\n"
          "    COMPREPLY=()\n"
          "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
          "        COMPREPLY=($(compgen -W \"--help --version ",
          out);
    for (size_t i = 0; (command = command_at(i)); i++) fprintf(out, "%s ", command->name);
    fputs("\" -- \"$word\"))\n        return\n    fi\n    case $command,$before in\n", out);
    for (size_t i = 0; (command = command_at(i)); i++) print_values(out, command);
    fputs("    help,help) COMPREPLY=($(compgen -W \"--man --completion ", out);
    for (size_t i = 0; (command = command_at(i)); i++) fprintf(out, "%s ", command->name);
    fputs("\" -- \"$word\")); return;;\n    esac\n    case $command in\n", out);
    for (size_t i = 0; (command = command_at(i)); i++) {
        fprintf(out, "    %s) words=\"", command->name);
        print_words(out, command);
        fputs("\";;\n", out);
    }
    fputs("    esac\n"
          "    case $word in\n"
          "    -*) COMPREPLY=($(compgen -W \"$words\" -- \"$word\"));;\n"
          "    *) compopt -o default;;\n"
          "    esac\n"
          "}\n"
          "complete -F _quern quern\n",
          out);
}

/* Inside single quotes and brackets of a zsh _arguments specification. */
static void print_quoted(FILE *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '\'') {
            fputs("'\\''", out);
        } else if (strchr("[]:\\", *text)) {
            fprintf(out, "\\%c", *text);
        } else {
            fputc(*text, out);
        }
    }
}

static void print_zsh_spec(FILE *out, const struct option_row *row, const char *dashes,
                           const char *name)
{
    fprintf(out, " \\\n            '%s%s%s[", row->kind == OPTION_TEXTS ? "*" : "", dashes, name);
    print_quoted(out, row->help);
    fputc(']', out);
    if (row->kind != OPTION_FLAG) {
        fputc(':', out);
        if (row->kind == OPTION_CHOICE) {
            fputs("value:(", out);
            for (const char *c = row->value; *c; c++) fputc(*c == '|' ? ' ' : *c, out);
            fputc(')', out);
        } else {
            print_quoted(out, row->value);
            fputs(is_file(row) ? ":_files" : ": ", out);
        }
    }
    fputc('\'', out);
}

void help_completion_zsh(FILE *out)
{
    const struct command *command;
    fputs("#compdef quern\n"
          "# zsh completion of quern, written by: quern help --completion zsh\n"
          "_quern() {\n"
          "    local -a commands\n"
          "    commands=(",
          out);
    for (size_t i = 0; (command = command_at(i)); i++) {
        fprintf(out, "\n        '%s:", command->name);
        print_quoted(out, command->summary);
        fputc('\'', out);
    }
    fputs("\n    )\n"
          "    if (( CURRENT == 2 )); then\n"
          "        _describe command commands\n"
          "        return\n"
          "    fi\n"
          "    local command=$words[2]\n"
          "    shift words\n"
          "    (( CURRENT-- ))\n"
          "    case $command in\n",
          out);
    for (size_t i = 0; (command = command_at(i)); i++) {
        fprintf(out, "        %s) _arguments -s", command->name);
        const struct option_row *row;
        for (size_t r = 0; (row = option_at(r)); r++) {
            if (!option_of(row, command)) continue;
            const char letter[] = {row->letter, '\0'};
            print_zsh_spec(out, row, "--", row->name);
            if (row->letter) print_zsh_spec(out, row, "-", letter);
        }
        fputs(" \\\n            '*:file:_files';;\n", out);
    }
    fputs("    esac\n}\n"
          "if [ \"$funcstack[1]\" = _quern ]; then _quern \"$@\"; else compdef _quern quern; fi\n",
          out);
}
