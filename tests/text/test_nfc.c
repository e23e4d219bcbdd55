/* SPDX-License-Identifier: MIT
 * Normalisation of parts against utf8proc's of whole strings. */
#include "text/tokenizer_test.h"

#include <utf8proc.h>
#include "text/nfc.h"
#include "text/utf8.h"

static struct qrn_allocator allocator;

static struct qrn_nfc nfc_open(void)
{
    return (struct qrn_nfc){{.allocator = &allocator}, {.allocator = &allocator},
                            {.allocator = &allocator}};
}

static void nfc_close(struct qrn_nfc *nfc)
{
    qrn_scratch_free(&nfc->text);
    qrn_scratch_free(&nfc->characters);
    qrn_scratch_free(&nfc->sorting);
}

static void compare(struct qrn_nfc *nfc, const char *text, size_t n)
{
    utf8proc_uint8_t *wanted = NULL;
    const utf8proc_ssize_t n_wanted =
        utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)n, &wanted,
                     UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    assert_true(n_wanted >= 0);
    struct qrn_span got;
    struct qrn_error err;
    assert_int_equal(qrn_nfc_apply(nfc, (struct qrn_span){text, n}, &got, &err), QRN_OK);
    assert_text(got, (const char *)wanted, (size_t)n_wanted);
    free(wanted);
}

/* Characters that are said to be inert: they do not change, are starters, and are not the second
 * part of a decomposition (all compositions are the reverse of one). */
static void test_inert_characters(void **state)
{
    (void)state;
    size_t n_inert = 0;
    for (int32_t c = 0; c < 0x110000; c++) {
        if (c >= 0xd800 && c < 0xe000) continue;
        int32_t parts[8];
        int boundary = 0;
        /* Two-step decompositions end in a second part of one of the steps, or of both. */
        const utf8proc_ssize_t n =
            utf8proc_decompose_char(c, parts, 8, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE, &boundary);
        assert_true(n >= 1 && n <= 4);
        for (utf8proc_ssize_t i = 1; i < n; i++) assert_false(qrn_nfc_is_inert(parts[i]));
        if (!qrn_nfc_is_inert(c)) continue;
        n_inert++;
        assert_int_equal(utf8proc_get_property(c)->combining_class, 0);
        char text[4];
        utf8proc_uint8_t *same = NULL;
        const size_t n_bytes = qrn_utf8_put(text, c);
        assert_int_equal(utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)n_bytes,
                                      &same, UTF8PROC_STABLE | UTF8PROC_COMPOSE),
                         n_bytes);
        assert_memory_equal(same, text, n_bytes);
        free(same);
    }
    assert_true(n_inert > 27000);
}

/* Each code point alone, after a letter, between marks. */
static void test_all_code_points(void **state)
{
    (void)state;
    struct qrn_nfc nfc = nfc_open();
    for (int32_t c = 0; c < 0x110000; c++) {
        if (c >= 0xd800 && c < 0xe000) continue;
        char text[16] = "a";
        size_t n = 1;
        n += qrn_utf8_put(text + n, c);
        n += qrn_utf8_put(text + n, 0x301);
        n += qrn_utf8_put(text + n, c);
        n += qrn_utf8_put(text + n, 0x323);
        text[n++] = 'b';
        compare(&nfc, text, n);
        compare(&nfc, text + 1, n - 2);
    }
    nfc_close(&nfc);
}

static void test_random_strings(void **state)
{
    (void)state;
    static const int32_t ranges[][2] = {
        {0, 0x80},        {0x80, 0x300},    {0x300, 0x370},   {0x400, 0x500},     {0x590, 0x700},
        {0x900, 0x1000},  {0x1100, 0x1200}, {0x1e00, 0x2130}, {0x3040, 0x3100},   {0xac00, 0xd7a4},
        {0xf900, 0xfb50}, {0x4e00, 0x4e40}, {0x1ab0, 0x1b00}, {0x11000, 0x12000},
        {0x1d150, 0x1d200},
    };
    struct qrn_nfc nfc = nfc_open();
    uint64_t seed = 3;
    for (int i = 0; i < 100000; i++) {
        char text[100 * 4];
        size_t n = 0;
        const size_t n_chars = random_below(&seed, random_below(&seed, 10) ? 12 : 100);
        for (size_t k = 0; k < n_chars; k++) {
            const int32_t *const r = ranges[random_below(&seed, sizeof ranges / sizeof *ranges)];
            n += qrn_utf8_put(text + n,
                              r[0] + (int32_t)random_below(&seed, (size_t)(r[1] - r[0])));
        }
        compare(&nfc, text, n);
    }
    nfc_close(&nfc);
}

/* More marks in one run than are sorted by insertion. */
static void test_long_runs(void **state)
{
    (void)state;
    static const int32_t marks[] = {0x301, 0x316, 0x327, 0x323, 0x5b0, 0x345, 0x1dce, 0x3099};
    struct qrn_nfc nfc = nfc_open();
    uint64_t seed = 4;
    for (size_t length = 20; length < 400; length += 7) {
        char text[2000] = "e";
        size_t n = 1;
        for (size_t k = 0; k < length; k++)
            n += qrn_utf8_put(text + n, marks[random_below(&seed, sizeof marks / sizeof *marks)]);
        text[n++] = 'x';
        compare(&nfc, text, n);
    }
    nfc_close(&nfc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_inert_characters),
        cmocka_unit_test(test_all_code_points),
        cmocka_unit_test(test_random_strings),
        cmocka_unit_test(test_long_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
