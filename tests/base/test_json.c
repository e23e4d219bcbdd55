/* SPDX-License-Identifier: MIT
 * JSON: what is read, what is refused and where, bounds of memory, failing memory. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/json.h"
#include "support/counting_allocator.h"

static enum qrn_status parse(const char *text, struct qrn_json *json, struct qrn_error *err)
{
    return qrn_json_parse(text, strlen(text), SIZE_MAX, NULL, json, err);
}

static void reads_values(void **state)
{
    (void)state;
    struct qrn_json j;
    struct qrn_error e = {0};
    if (parse(
            " {\"a\" : [1, -2.5 ,\"x\\n\\u00e9\\ud83d\\ude00\"],\n\t\"b\":{\"c\":true},\"d\":null, "
            "\"e\":false, \"\":[] }\r\n",
            &j, &e) != QRN_OK)
        fail_msg("%s", e.text);
    const struct qrn_json_value *a = qrn_json_member(j.values, "a");
    assert_int_equal(j.values[0].n, 5);
    assert_int_equal(a->type, QRN_JSON_ARRAY);
    assert_int_equal(a->n, 3);
    assert_int_equal(a[1].as.integer, 1);
    assert_true(a[2].type == QRN_JSON_NUMBER && a[2].as.number == -2.5);
    assert_string_equal(a[3].as.string, "x\n\xc3\xa9\xf0\x9f\x98\x80");
    assert_int_equal(a[3].n, 8);
    assert_true(qrn_json_member(qrn_json_member(j.values, "b"), "c")->as.boolean);
    assert_true(qrn_json_is(qrn_json_member(j.values, "d"), QRN_JSON_NULL));
    assert_false(qrn_json_member(j.values, "e")->as.boolean);
    assert_int_equal(qrn_json_member(j.values, "")->n, 0);
    assert_null(qrn_json_member(j.values, "f"));
    assert_null(qrn_json_member(NULL, "f"));
    assert_null(qrn_json_member(a, "f"));
    qrn_json_free(&j);
    qrn_json_free(&j);
}

static void reads_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool whole;
        double value;
    } cases[] = {
        {"0", true, 0},
        {"-0", true, 0},
        {"7", true, 7},
        {"9223372036854775807", true, 0x1p63},
        {"-9223372036854775808", true, -0x1p63},
        {"9223372036854775808", false, 0x1p63},
        {"18446744073709551616", false, 0x1p64},
        {"1e0", false, 1},
        {"1e-06", false, 1e-06},
        {"1E+7", false, 1e7},
        {"10000000.0", false, 1e7},
        {"0.25", false, 0.25},
        {"0.1", false, 0.1},
        {"1e-05", false, 1e-05},
        {"6.1035e-5", false, 6.1035e-5},
        {"1e22", false, 1e22},
        {"-1.5e3", false, -1500},
        {"0.0001220703125", false, 0x1p-13},
        {"1e-400", false, 0},
        {"0e999999999999999999999", false, 0},
        {"3.141592653589793", false, 3.141592653589793},
    };
    /* A host program may have set a locale with another decimal point. */
    if (!setlocale(LC_NUMERIC, "de_DE.UTF-8")) (void)setlocale(LC_NUMERIC, "");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct qrn_json j;
        double d;
        assert_int_equal(parse(cases[i].text, &j, NULL), QRN_OK);
        assert_int_equal(j.values[0].type == QRN_JSON_INTEGER, cases[i].whole);
        assert_true(qrn_json_number(j.values, &d));
        if (d != cases[i].value) fail_msg("%s is read as %.17g", cases[i].text, d);
        qrn_json_free(&j);
    }
    static const struct {
        const char *text;
        double value;
    } rough[] = {{"1e300", 1e300},
                 {"123456789012345678901234567890.5e-10", 1.2345678901234567e19},
                 {"4.9e-290", 4.9e-290},
                 {"0.000000000000000000000000000000123", 1.23e-31}};
    for (size_t i = 0; i < sizeof rough / sizeof *rough; i++) {
        struct qrn_json j;
        double d;
        assert_int_equal(parse(rough[i].text, &j, NULL), QRN_OK);
        assert_true(qrn_json_number(j.values, &d));
        assert_true(fabs(d - rough[i].value) <= 1e-15 * rough[i].value);
        qrn_json_free(&j);
    }
}

static void refuses(void **state)
{
    (void)state;
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"", "line 1 column 1: text ends before a value"},
        {"  ", "column 3: text ends before a value"},
        {"{", "key expected"},
        {"[", "text ends before a value"},
        {"[1", "',' or ']' expected"},
        {"[1,", "text ends before a value"},
        {"[1,]", "column 4: unexpected character"},
        {"[,1]", "unexpected character"},
        {"[1 2]", "column 4: ',' or ']' expected"},
        {"{\"a\"}", "':' expected"},
        {"{\"a\":}", "unexpected character"},
        {"{\"a\":1,}", "key expected"},
        {"{a:1}", "key expected"},
        {"{\"a\":1 \"b\":2}", "',' or '}' expected"},
        {"[1}", "',' or ']' expected"},
        {"1 2", "text behind the value"},
        {"nul", "unexpected character"},
        {"NaN", "unexpected character"},
        {"-", "unexpected character"},
        {"+1", "unexpected character"},
        {"01", "number begins with 0"},
        {"1.", "digit expected"},
        {"1e", "digit expected"},
        {"1e+", "digit expected"},
        {".5", "unexpected character"},
        {"1e999", "number out of range"},
        {"-1e400", "number out of range"},
        {"\"a", "text ends inside a string"},
        {"\"a\\\"", "text ends inside a string"},
        {"\"a\\", "unknown escape"},
        {"\"\\x\"", "unknown escape"},
        {"\"a\nb\"", "line 1 column 3: control character"},
        {"\n\n \"\\u12g4\"", "line 3 column 3: \\u escape of no character"},
        {"\"\\u0000\"", "\\u escape of no character, or of NUL"},
        {"\"\\ud800\"", "\\u escape"},
        {"\"\\ud800\\u0041\"", "\\u escape"},
        {"\"\\udc00\"", "\\u escape"},
        {"\"\\u12\"", "\\u escape"},
        {"\"\x80\"", "not UTF-8"},
        {"\"\xc0\x80\"", "not UTF-8"},
        {"\"\xe0\x80\x80\"", "not UTF-8"},
        {"\"\xed\xa0\x80\"", "not UTF-8"},
        {"\"\xf4\x90\x80\x80\"", "not UTF-8"},
        {"\"\xc3\"", "not UTF-8"},
        {"{\"a\":1,\"a\":2}", "key \"a\" occurs twice"},
        {"{\"a\":1,\"b\":1,\"c\":1,\"d\":1,\"e\":1,\"f\":1,\"g\":1,\"h\":1,\"i\":1,\"\\u0061\":2}",
         "key \"a\" occurs twice"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct qrn_json j;
        struct qrn_error e = {0};
        /* In a block of its own size, so that sanitizers see a byte too far. */
        char *copy = malloc(strlen(cases[i].text) + (*cases[i].text == '\0'));
        memcpy(copy, cases[i].text, strlen(cases[i].text));
        const enum qrn_status s =
            qrn_json_parse(copy, strlen(cases[i].text), SIZE_MAX, NULL, &j, &e);
        if (s != QRN_ERR_FORMAT || !strstr(e.text, cases[i].why))
            fail_msg("%s: \"%s\", wants \"%s\"", cases[i].text, e.text, cases[i].why);
        assert_null(j.values);
        free(copy);
    }
    struct qrn_json j;
    assert_int_equal(qrn_json_parse("[\0]", 3, SIZE_MAX, NULL, &j, NULL), QRN_ERR_FORMAT);
    assert_int_equal(qrn_json_parse("\"\0\"", 3, SIZE_MAX, NULL, &j, NULL), QRN_ERR_FORMAT);
}

static void bounds_depth_and_memory(void **state)
{
    (void)state;
    static char text[1 << 20];
    struct qrn_json j;
    struct qrn_error e = {0};
    for (size_t depth = 63; depth < 66; depth++) {
        memset(text, '[', depth);
        memset(text + depth, ']', depth);
        const enum qrn_status s = qrn_json_parse(text, 2 * depth, SIZE_MAX, NULL, &j, &e);
        assert_int_equal(s, depth <= QRN_JSON_MAX_DEPTH ? QRN_OK : QRN_ERR_FORMAT);
        qrn_json_free(&j);
    }
    assert_string_equal(e.text, "JSON nests more than 64 levels deep");
    memset(text, '[', sizeof text);
    assert_int_equal(qrn_json_parse(text, sizeof text, SIZE_MAX, NULL, &j, &e), QRN_ERR_FORMAT);
    assert_int_equal(qrn_json_parse(text, sizeof text, 4 * sizeof text, NULL, &j, &e),
                     QRN_ERR_FORMAT);
    assert_non_null(strstr(e.text, "holds too many values"));

    /* What is allocated never exceeds the budget that let the text through. */
    static const char *const units[] = {
        "[],",         "{},", "1,", "\"\",", "\"abc\",", "{\"a\":1},", "{\"a\":1,\"b\":2},",
        "\"\\u00e9\","};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        size_t n = 1;
        while (n + strlen(units[i]) + 1 < 5000) {
            strcpy(text + n, units[i]);
            n += strlen(units[i]);
        }
        text[n - 1] = ']';
        struct counting_allocator c;
        counting_allocator_init(&c);
        const struct qrn_host host = counting_host(&c);
        size_t budget = 1000;
        while (qrn_json_parse(text, n, budget, &host, &j, NULL) != QRN_OK) budget += 100;
        assert_true(c.peak_bytes <= budget);
        qrn_json_free(&j);
        assert_int_equal(c.live_bytes, 0);
        assert_int_equal(c.n_bad_frees, 0);
    }
}

static void failing_memory_is_an_error(void **state)
{
    (void)state;
    static const char text[] = "{\"a\":1,\"b\":[2],\"c\":3,\"d\":4,\"e\":5,\"f\":6,\"g\":7,\"h\":8,"
                               "\"i\":9,\"long key of it all\":0}";
    struct counting_allocator c;
    counting_allocator_init(&c);
    const struct qrn_host host = counting_host(&c);
    for (size_t n = 1;; n++) {
        struct qrn_json j;
        counting_allocator_reset(&c);
        c.fail_at = n;
        const enum qrn_status s = qrn_json_parse(text, sizeof text - 1, SIZE_MAX, &host, &j, NULL);
        if (c.n_failed == 0) {
            assert_int_equal(s, QRN_OK);
            assert_int_equal(n, 4); /* values, strings, a list of keys */
            qrn_json_free(&j);
            break;
        }
        assert_int_equal(s, QRN_ERR_MEMORY);
        assert_int_equal(c.live_bytes, 0);
    }
}

/* Time grows with the text, also for one object of many keys. */
static void many_keys(void **state)
{
    (void)state;
    enum { N = 200000 };
    char *text = malloc((size_t)N * 20);
    size_t n = (size_t)sprintf(text, "{");
    for (int i = 0; i < N; i++)
        n +=
            (size_t)sprintf(text + n, "%s\"%d\":%d", i ? "," : "", (int)((int64_t)i * 7919 % N), i);
    n += (size_t)sprintf(text + n, "}");
    struct qrn_json j;
    assert_int_equal(qrn_json_parse(text, n, SIZE_MAX, NULL, &j, NULL), QRN_OK);
    assert_int_equal(j.values[0].n, N);
    assert_int_equal(qrn_json_member(j.values, "7919")->as.integer, 1);
    qrn_json_free(&j);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_values),
        cmocka_unit_test(reads_numbers),
        cmocka_unit_test(refuses),
        cmocka_unit_test(bounds_depth_and_memory),
        cmocka_unit_test(failing_memory_is_an_error),
        cmocka_unit_test(many_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
