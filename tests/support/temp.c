/* SPDX-License-Identifier: MIT
 * Files of a test: a folder of its own, removed with all that is in it at the end of the program. */
#include "support/temp.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[1024];

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *place)
{
    (void)status, (void)kind, (void)place;
    (void)remove(path);
    return 0;
}

static void remove_folder(void)
{
    enum { OPEN_FOLDERS = 8 };
    (void)nftw(folder, remove_one, OPEN_FOLDERS, FTW_DEPTH | FTW_PHYS);
}

const char *temp_path(const char *name)
{
    static char paths[8][2048];
    static unsigned next;
    if (!folder[0]) {
        const char *tmp = getenv("TMPDIR");
        (void)snprintf(folder, sizeof folder, "%s/quern-test-XXXXXX", tmp && *tmp ? tmp : P_tmpdir);
        if (!mkdtemp(folder)) {
            perror(folder);
            exit(1);
        }
        atexit(remove_folder);
    }
    char *path = paths[next++ % 8];
    (void)snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

const char *temp_file(const char *name, const void *bytes, size_t n_bytes)
{
    const char *path = temp_path(name);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(bytes, 1, n_bytes, f) != n_bytes || fclose(f) != 0) {
        perror(path);
        exit(1);
    }
    return path;
}

void *read_file(const char *path, size_t *n_bytes)
{
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    size_t n = 0, room = 4096;
    char *bytes = malloc(room);
    while (bytes) {
        const size_t got = fread(bytes + n, 1, room - 1 - n, f);
        if (got == 0) break;
        n += got;
        if (n == room - 1) bytes = realloc(bytes, room *= 2);
    }
    fclose(f);
    if (bytes) bytes[n] = '\0';
    if (n_bytes) *n_bytes = n;
    return bytes;
}
