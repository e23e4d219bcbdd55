/* SPDX-License-Identifier: MIT
 * Help, the manual page and shell completion, all from the tables of options.h. */
#ifndef QUERN_TOOLS_HELP_H
#define QUERN_TOOLS_HELP_H

#include <stdio.h>
#include "options.h"

void help_overview(FILE *out);
void help_command(const struct command *command, FILE *out);
void help_man(FILE *out);             /* man.c */
void help_completion_bash(FILE *out); /* completion.c */
void help_completion_zsh(FILE *out);

/* "-n, --predict N" */
void help_option_form(const struct option_row *row, char *out, size_t n_out);
/* The help text with the default and the variable behind it. */
void help_option_text(const struct option_row *row, char *out, size_t n_out);

#endif
