/* SPDX-License-Identifier: MIT
 * Decoding UTF-8: all code points, and what counts as one error. */
#include "text/tokenizer_test.h"

#include <utf8proc.h>
#include "text/utf8.h"

static void test_all_code_points(void **state)
{
    (void)state;
    for (int32_t c = 0; c < 0x110000; c++) {
        char text[4];
        const size_t n = qrn_utf8_put(text, c);
        size_t n_read = 0;
        struct qrn_utf8 d = {0};
        if (c >= 0xd800 && c < 0xe000) {
            assert_int_equal(qrn_utf8_n_valid(text, n), 0);
            continue;
        }
        assert_int_equal(qrn_utf8_first(text, &n_read), c);
        assert_int_equal(n_read, n);
        assert_int_equal(qrn_utf8_n_valid(text, n), n);
        assert_int_equal(qrn_utf8_n_valid(text, n - 1), 0);
        for (size_t i = 0; i + 1 < n; i++)
            assert_int_equal(qrn_utf8_push(&d, (uint8_t)text[i]), QRN_UTF8_MORE);
        assert_int_equal(qrn_utf8_push(&d, (uint8_t)text[n - 1]), c);
        assert_int_equal(d.n_missing, 0);
    }
}

/* All sequences of three bytes, and of four that begin like a character of four: valid here is
 * valid for utf8proc. */
static void test_same_as_utf8proc(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 1u << 24; i++) {
        const uint8_t b[4] = {(uint8_t)(i >> 16), (uint8_t)(i >> 8), (uint8_t)i, 0x80};
        const size_t n = b[0] >= 0xf0 ? 4 : 3;
        /* ASCII at the front says nothing new. */
        if (b[0] < 0x80 && (i & 0x3f3f)) continue;
        size_t wanted = 0;
        for (utf8proc_int32_t c; wanted < n;) {
            const utf8proc_ssize_t n_read =
                utf8proc_iterate(b + wanted, (utf8proc_ssize_t)(n - wanted), &c);
            if (n_read <= 0) break;
            wanted += (size_t)n_read;
        }
        const size_t got = qrn_utf8_n_valid((const char *)b, n);
        if (got != wanted)
            fail_msg("%02x %02x %02x %02x: %zu bytes are valid, utf8proc says %zu", b[0], b[1],
                     b[2], b[3], got, wanted);
    }
}

#define R "\xef\xbf\xbd"
/* As the WHATWG encoding standard and The Unicode Standard, table 3-8, say. */
static const struct {
    const char *bytes, *text;
} errors[] = {
    {"\x80", R},
    {"\xc0\xaf", R R},
    {"\xc1\x80""a", R R "a"},
    {"\xc3""a", R "a"},
    {"\xc3\xc3\xa9", R "\xc3\xa9"},
    {"\xe0\x80\x80", R R R},
    {"\xe0\x9f\xbf", R R R},
    {"\xe4\xbd", R},
    {"\xe4\xbd""a", R "a"},
    {"\xe4\xbd\xe4\xbd\xa0", R "\xe4\xbd\xa0"},
    {"\xed\xa0\x80\xed\xb0\x80", R R R R R R},
    {"\xef\xbf\xbe", "\xef\xbf\xbe"},
    {"\xf0\x80\x80\x80", R R R R},
    {"\xf0\x9f\x99", R},
    {"\xf0\x9f\x99\x99\x99", "\xf0\x9f\x99\x99" R},
    {"\xf1\x80\x80\xe1\x80\xc2""b\x80""c\x80\xbf""d", R R R "b" R "c" R R "d"},
    {"\xf4\x90\x80\x80", R R R R},
    {"\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf"},
    {"\xf5\xff\xfe", R R R},
    {"long enough for eight at a time \xff and on it goes", "long enough for eight at a time " R
                                                             " and on it goes"},
};

/* However the bytes are cut. */
static void test_errors(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        const size_t n = strlen(errors[i].bytes);
        for (size_t cut = 0; cut <= n; cut++) {
            struct qrn_utf8 d = {0};
            char text[256];
            size_t n_text = qrn_utf8_repair(&d, errors[i].bytes, cut, text);
            n_text += qrn_utf8_repair(&d, errors[i].bytes + cut, n - cut, text + n_text);
            n_text += qrn_utf8_finish(&d, text + n_text);
            assert_text((struct qrn_span){text, n_text}, errors[i].text, strlen(errors[i].text));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_code_points),
        cmocka_unit_test(test_same_as_utf8proc),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
