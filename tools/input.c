/* SPDX-License-Identifier: MIT
 * What comes in: whole files, standard input. */
#include "input.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"

const char *input_name(const char *path)
{
    return strcmp(path, "-") == 0 ? "standard input" : path;
}

/* Everything up to the end; NULL with errno set if that fails. */
static char *read_all(FILE *file, size_t *n_out)
{
    size_t n = 0, n_reserved = 65536;
    char *bytes = malloc(n_reserved);
    while (bytes) {
        n += fread(bytes + n, 1, n_reserved - 1 - n, file);
        if (ferror(file)) {
            free(bytes);
            return NULL;
        }
        if (feof(file)) break;
        if (n < n_reserved - 1) continue;
        char *more = n_reserved <= SIZE_MAX / 2 ? realloc(bytes, n_reserved *= 2) : NULL;
        if (!more) free(bytes);
        bytes = more;
    }
    if (!bytes) {
        errno = ENOMEM;
        return NULL;
    }
    bytes[n] = '\0';
    *n_out = n;
    return bytes;
}

int read_file(const char *path, char **out, size_t *n_out)
{
    const bool standard = strcmp(path, "-") == 0;
    FILE *file = standard ? stdin : fopen(path, "rb");
    if (!file) return fail("%s: %s", path, strerror(errno));
    *out = read_all(file, n_out);
    const int reason = errno;
    if (!standard) fclose(file);
    return *out ? EXIT_OK : fail("%s: %s", input_name(path), strerror(reason));
}
