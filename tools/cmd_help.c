/* SPDX-License-Identifier: MIT
 * quern help: help, the manual page, completion scripts. */
#include "help.h"
#include "report.h"

int cmd_help(const struct options *options)
{
    if (options->man) {
        help_man(stdout);
    } else if (options->completion == COMPLETION_BASH) {
        help_completion_bash(stdout);
    } else if (options->completion == COMPLETION_ZSH) {
        help_completion_zsh(stdout);
    } else if (options->n_arguments == 0) {
        help_overview(stdout);
    } else {
        const struct command *command = command_find(options->arguments[0]);
        if (!command) return fail_usage("help", "unknown command \"%s\"", options->arguments[0]);
        help_command(command, stdout);
    }
    return EXIT_OK;
}
