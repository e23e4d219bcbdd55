/* SPDX-License-Identifier: MIT
 * Files: from disk, through a source with and without map, and what is refused. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "formats/archive.h"
#include "formats/file.h"
#include "formats/output.h"
#include "base/quote.h"
#include "support/counting_allocator.h"
#include "support/memory_source.h"
#include "support/temp.h"

static void maps_a_file(void **state)
{
    (void)state;
    struct qrn_file f;
    const char *path = temp_file("abc", "abc", 3);
    assert_int_equal(qrn_file_open(path, NULL, &f, NULL), QRN_OK);
    assert_int_equal(f.n_bytes, 3);
    assert_memory_equal(f.bytes, "abc", 3);
    qrn_file_close(&f);
    assert_null(f.bytes);
    qrn_file_close(&f);
}

static void opens_an_empty_file(void **state)
{
    (void)state;
    struct qrn_file f;
    assert_int_equal(qrn_file_open(temp_file("empty", "", 0), NULL, &f, NULL), QRN_OK);
    assert_int_equal(f.n_bytes, 0);
    assert_non_null(f.bytes);
    qrn_file_close(&f);
}

static void refuses_what_is_no_file(void **state)
{
    (void)state;
    struct qrn_file f;
    struct qrn_error e = {0};
    assert_int_equal(qrn_file_open(temp_path("none"), NULL, &f, &e), QRN_ERR_IO);
    assert_non_null(strstr(e.text, "none: No such file"));
    assert_int_equal(qrn_file_open(temp_path("."), NULL, &f, &e), QRN_ERR_IO);
    assert_non_null(strstr(e.text, "is a directory"));
    const char *fifo = temp_path("fifo");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(qrn_file_open(fifo, NULL, &f, &e), QRN_ERR_IO);
    assert_non_null(strstr(e.text, "not a regular file"));
}

/* KiB of files that this process has in memory. */
static long resident_files(void)
{
    char line[256];
    long n = -1;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && n < 0 && fgets(line, sizeof line, f))
        if (sscanf(line, "RssFile: %ld", &n) != 1) n = -1;
    if (f) fclose(f);
    return n;
}

/* Pages that were read count no more once they are released, and can be read again. */
static void releases_pages(void **state)
{
    (void)state;
    enum { N = 8 << 20 };
    uint8_t *bytes = malloc(N);
    struct qrn_file f;
    unsigned sum = 0;
    for (size_t i = 0; i < N; i++) bytes[i] = (uint8_t)(i * 31 >> 7);
    assert_int_equal(qrn_file_open(temp_file("large", bytes, N), NULL, &f, NULL), QRN_OK);
    const long before = resident_files();
    if (before < 0) skip();
    assert_memory_equal(f.bytes, bytes, N);
    assert_in_range(resident_files() - before, N / 2 / 1024, N);
    assert_true(qrn_file_prefetch(&f, f.bytes + 5000, 100000));
    assert_true(qrn_file_release(&f, f.bytes + 100, N / 2 - 200));
    assert_in_range(resident_files() - before, 0, N * 5 / 8 / 1024);
    assert_true(qrn_file_release(&f, f.bytes + N / 2, N)); /* no further than the file's end */
    assert_in_range(resident_files() - before + 1024, 0, 2048);
    assert_false(qrn_file_release(&f, &sum, sizeof sum));
    assert_false(qrn_file_release(&f, f.bytes + N, 1));
    assert_memory_equal(f.bytes, bytes, N);
    qrn_file_close(&f);
    free(bytes);
}

static void source_in_place_and_copied(void **state)
{
    (void)state;
    const struct memory_file files[] = {{"a", "hello", 5}, {"e", "", 0}};
    for (int copies = 0; copies < 2; copies++) {
        struct counting_allocator c;
        counting_allocator_init(&c);
        const struct qrn_host host = counting_host(&c);
        struct memory_source s = {files, 2, copies != 0, 0, false};
        const struct qrn_source source = memory_source_interface(&s);
        struct qrn_file f;
        assert_int_equal(qrn_file_open_source(&source, "a", &host, &f, NULL), QRN_OK);
        assert_int_equal(f.n_bytes, 5);
        assert_memory_equal(f.bytes, "hello", 5);
        assert_int_equal(c.peak_bytes, copies ? 5 : 0); /* one allocation of the file's size */
        assert_int_equal(s.n_open, copies ? 0 : 1);
        qrn_file_close(&f);
        assert_int_equal(qrn_file_open_source(&source, "e", &host, &f, NULL), QRN_OK);
        assert_int_equal(f.n_bytes, 0);
        qrn_file_close(&f);
        assert_int_equal(s.n_open, 0);
        assert_int_equal(c.live_bytes, 0);
        assert_int_equal(c.n_bad_frees, 0);
    }
}

static enum qrn_status open_huge(void *user, const char *name, void **file, uint64_t *n_bytes,
                                 struct qrn_error *err)
{
    (void)name, (void)err;
    *file = user;
    *n_bytes = *(uint64_t *)user;
    return QRN_OK;
}

static enum qrn_status read_nothing(void *user, void *file, uint64_t offset, void *dst,
                                    size_t n_bytes, struct qrn_error *err)
{
    (void)user, (void)file, (void)offset, (void)dst, (void)n_bytes;
    if (err) strcpy(err->text, "the disk is gone");
    return QRN_ERR_IO;
}

static void close_nothing(void *user, void *file)
{
    (void)user, (void)file;
}

static void source_failures(void **state)
{
    (void)state;
    struct qrn_file f;
    struct qrn_error e = {0};
    uint64_t size = UINT64_MAX;
    struct qrn_source source = {open_huge, read_nothing, NULL, close_nothing, &size};
    assert_int_equal(qrn_file_open_source(&source, "x", NULL, &f, &e), QRN_ERR_IO);
    assert_non_null(strstr(e.text, "x: 18446744073709551615 bytes do not fit"));
    struct counting_allocator c;
    counting_allocator_init(&c);
    const struct qrn_host host = counting_host(&c);
    c.limit = 1000;
    size = 1001;
    assert_int_equal(qrn_file_open_source(&source, "x", &host, &f, &e), QRN_ERR_MEMORY);
    size = 10;
    assert_int_equal(qrn_file_open_source(&source, "x", &host, &f, &e), QRN_ERR_IO);
    assert_string_equal(e.text, "x: the disk is gone");
    assert_int_equal(c.live_bytes, 0);
    source.read = NULL;
    assert_int_equal(qrn_file_open_source(&source, "x", NULL, &f, &e), QRN_ERR_ARGUMENT);
    struct memory_source none = {NULL, 0, false, 0, false};
    source = memory_source_interface(&none);
    assert_int_equal(qrn_file_open_source(&source, "y", NULL, &f, &e), QRN_ERR_IO);
    assert_string_equal(e.text, "y: the source cannot open it");
}

static void archive_finds_and_refuses_twice(void **state)
{
    (void)state;
    struct qrn_archive a;
    qrn_archive_init(&a, NULL);
    assert_null(qrn_archive_find(&a, "x"));
    char name[16];
    for (int i = 999; i >= 0; i--) {
        const int n = snprintf(name, sizeof name, "t%d", i);
        const struct qrn_archive_tensor t = {.n_bytes = (size_t)i};
        assert_int_equal(qrn_archive_add(&a, name, (size_t)n, &t, NULL), QRN_OK);
    }
    assert_int_equal(qrn_archive_sort(&a, NULL), QRN_OK);
    for (int i = 0; i < 1000; i++) {
        snprintf(name, sizeof name, "t%d", i);
        const struct qrn_archive_tensor *t = qrn_archive_find(&a, name);
        assert_non_null(t);
        assert_int_equal(t->n_bytes, i);
    }
    assert_null(qrn_archive_find(&a, "t1000"));
    struct qrn_error e = {0};
    const struct qrn_archive_tensor t = {0};
    assert_int_equal(qrn_archive_add(&a, "t7--", 2, &t, NULL), QRN_OK);
    assert_int_equal(qrn_archive_sort(&a, &e), QRN_ERR_FORMAT);
    assert_string_equal(e.text, "tensor \"t7\" occurs twice");
    qrn_archive_free(&a);
}

static void output_appears_when_complete(void **state)
{
    (void)state;
    struct qrn_output out;
    struct stat st;
    const char *path = temp_file("out", "old", 3);
    assert_int_equal(qrn_output_open(&out, path, NULL, NULL), QRN_OK);
    qrn_output_write(&out, "new!", 4);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, 3); /* still the old one */
    assert_int_equal(qrn_output_finish(&out, NULL), QRN_OK);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, 4);

    struct qrn_error e = {0};
    assert_int_equal(qrn_output_open(&out, path, NULL, NULL), QRN_OK);
    qrn_output_write(&out, "half", 4);
    out.status = QRN_ERR_CANCELLED;
    assert_int_equal(qrn_output_finish(&out, &e), QRN_ERR_CANCELLED);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(stat(temp_path("out.part"), &st), -1);

    assert_int_equal(qrn_output_open(&out, temp_path("no/such/folder"), NULL, &e), QRN_ERR_IO);
    assert_int_equal(qrn_output_open(&out, temp_path("."), NULL, &e), QRN_ERR_IO);
    assert_int_equal(qrn_output_open(&out, "/dev/full", NULL, &e), QRN_OK);
    qrn_output_zeros(&out, 100000);
    assert_int_equal(qrn_output_finish(&out, &e), QRN_ERR_IO);
    assert_non_null(strstr(e.text, "/dev/full: No space"));
}

static void names_are_quoted_without_harm(void **state)
{
    (void)state;
    char long_name[300];
    memset(long_name, 'n', sizeof long_name);
    assert_string_equal(qrn_quote("a\x1b[1m\"\n", 7).text, "\"a?[1m??\"");
    assert_string_equal(qrn_quote("", 0).text, "\"\"");
    const struct qrn_quoted q = qrn_quote(long_name, sizeof long_name);
    assert_int_equal(strlen(q.text), sizeof q.text - 1);
    assert_string_equal(q.text + strlen(q.text) - 5, "n...\"");
    for (size_t at = 85; at < 100; at++) { /* no half characters where it is cut */
        memset(long_name, 'n', sizeof long_name);
        memcpy(long_name + at, "\xe4\xbd\xa0", 3);
        const struct qrn_quoted cut = qrn_quote(long_name, sizeof long_name);
        const char *c = strchr(cut.text, '\xe4');
        assert_true(!c || memcmp(c, "\xe4\xbd\xa0", 3) == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(maps_a_file),
        cmocka_unit_test(opens_an_empty_file),
        cmocka_unit_test(refuses_what_is_no_file),
        cmocka_unit_test(releases_pages),
        cmocka_unit_test(source_in_place_and_copied),
        cmocka_unit_test(source_failures),
        cmocka_unit_test(archive_finds_and_refuses_twice),
        cmocka_unit_test(output_appears_when_complete),
        cmocka_unit_test(names_are_quoted_without_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
