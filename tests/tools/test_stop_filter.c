/* SPDX-License-Identifier: MIT
 * Stop texts in a stream, cut into pieces in every way. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "../../tools/stop_filter.c"

struct result {
    char text[64];
    size_t n;
    bool found;
};

static void take(struct result *r, struct qrn_span span)
{
    assert_true(r->n + span.n_bytes < sizeof r->text);
    if (span.n_bytes > 0) memcpy(r->text + r->n, span.bytes, span.n_bytes);
    r->n += span.n_bytes;
}

/* Pushes text in pieces: bit i of cuts is a cut behind byte i. */
static struct result stream(const struct text_list *stops, const char *text, unsigned cuts)
{
    struct stop_filter f = {.stops = stops};
    struct result r = {.n = 0};
    const size_t n = strlen(text);
    for (size_t begin = 0, end; begin < n && !r.found; begin = end) {
        end = begin + 1;
        while (end < n && !(cuts >> (end - 1) & 1u)) end++;
        struct qrn_span show;
        r.found =
            stop_filter_push(&f, (struct qrn_span){text + begin, end - begin}, &show) == STOP_FOUND;
        take(&r, show);
    }
    take(&r, stop_filter_finish(&f));
    stop_filter_free(&f);
    return r;
}

static void expect(const struct text_list *stops, const char *text, const char *want, bool found)
{
    for (unsigned cuts = 0; cuts < 1u << (strlen(text) - 1); cuts++) {
        const struct result r = stream(stops, text, cuts);
        assert_string_equal(r.text, want);
        assert_int_equal(r.found, found);
    }
}

static void test_every_cut(void **state)
{
    (void)state;
    const struct text_list none = {.n = 0}, one = {{"end"}, 1}, two = {{"abab", "\n\n"}, 2};
    expect(&none, "some text", "some text", false);
    expect(&one, "the enend it", "the en", true);
    expect(&one, "en enen e", "en enen e", false);
    expect(&one, "endless", "", true);
    expect(&two, "abaabab x", "aba", true);
    expect(&two, "ab\n\nabab", "ab", true);
    expect(&two, "a\nb\nab", "a\nb\nab", false);
}

static void test_nothing_is_held_too_long(void **state)
{
    (void)state;
    const struct text_list stops = {{"stop", "op art"}, 2};
    struct stop_filter f = {.stops = &stops};
    struct qrn_span show;
    assert_int_equal(stop_filter_push(&f, (struct qrn_span){"a st", 4}, &show), STOP_NO);
    assert_int_equal(show.n_bytes, 2); /* "st" may go on */
    assert_int_equal(stop_filter_push(&f, (struct qrn_span){"ay", 2}, &show), STOP_NO);
    assert_int_equal(show.n_bytes, 4);
    assert_memory_equal(show.bytes, "stay", 4);
    assert_int_equal(stop_filter_push(&f, (struct qrn_span){"sto", 3}, &show), STOP_NO);
    assert_int_equal(show.n_bytes, 0);
    show = stop_filter_finish(&f);
    assert_int_equal(show.n_bytes, 3);
    stop_filter_free(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_cut),
        cmocka_unit_test(test_nothing_is_held_too_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
