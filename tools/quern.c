/* SPDX-License-Identifier: MIT
 * The program quern: `quern COMMAND [options]`.
 *
 * A command is a row of commands.inc and a function cmd_<name> in cmd_<name>.c; its options are
 * rows of options.inc.  What a command is to do arrives as a struct options; it returns the exit
 * status: 0, 1 (failed, after one line on standard error) or 2 (wrong usage).  A good first one to
 * read is cmd_run.c: open a model, feed the prompt, choose tokens, print text. */
#include <stdio.h>
#include <string.h>

#include <quern/version.h>

#include "help.h"
#include "options.h"
#include "report.h"

static int run_command(const struct command *command, int n_words, char **words)
{
    struct options options;
    if (!options_parse(command, n_words, words, &options)) return EXIT_USAGE;
    if (options.help) {
        help_command(command, stdout);
        return finish_output();
    }
    const int status = command->run(&options);
    return status == EXIT_OK ? finish_output() : status;
}

int main(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : "";
    if (*word == '\0') {
        help_overview(stderr);
        return EXIT_USAGE;
    }
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0) {
        printf("quern %s\n", qrn_version());
        return finish_output();
    }
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
        help_overview(stdout);
        return finish_output();
    }
    const struct command *command = command_find(word);
    if (!command && word[0] == '-')
        return fail_usage(NULL, "the command comes first: quern COMMAND [options], not %s", word);
    if (!command) return fail_usage(NULL, "unknown command \"%s\"", word);
    return run_command(command, argc - 2, argv + 2);
}
