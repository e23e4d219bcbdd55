/* SPDX-License-Identifier: MIT
 * main() of a fuzz target without a fuzzer: runs files, and the files of folders.
 *     build/fuzz/fuzz_gguf fuzz/corpus/gguf FILE... */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Files run, or -1. */
static int run_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f) return -1;
    size_t n = 0, room = 1 << 16;
    uint8_t *bytes = malloc(room);
    while (bytes) {
        const size_t got = fread(bytes + n, 1, room - n, f);
        if (got == 0) break;
        n += got;
        if (n < room) continue;
        uint8_t *more = realloc(bytes, room *= 2);
        if (!more) free(bytes);
        bytes = more;
    }
    const int failed = ferror(f);
    fclose(f);
    /* A block of the very size, so that sanitizers see a byte too far. */
    uint8_t *exact = bytes ? malloc(n ? n : 1) : NULL;
    if (exact && !failed) {
        memcpy(exact, bytes, n);
        (void)LLVMFuzzerTestOneInput(exact, n);
    }
    free(bytes);
    free(exact);
    return exact && !failed ? 1 : -1;
}

static int run(const char *path)
{
    DIR *dir = opendir(path);
    if (!dir) return run_file(path);
    int n = 0;
    for (struct dirent *e; n >= 0 && (e = readdir(dir)) != NULL;) {
        char file[4096];
        if (e->d_name[0] == '.') continue;
        (void)snprintf(file, sizeof file, "%s/%s", path, e->d_name);
        const int one = run_file(file);
        n = one < 0 ? -1 : n + one;
    }
    closedir(dir);
    return n;
}

int main(int argc, char **argv)
{
    int n = 0;
    for (int i = 1; i < argc; i++) {
        const int some = run(argv[i]);
        if (some < 0) {
            fprintf(stderr, "%s: cannot be read\n", argv[i]);
            return 1;
        }
        n += some;
    }
    printf("%d inputs\n", n);
    return 0;
}
