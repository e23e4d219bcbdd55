/* SPDX-License-Identifier: MIT
 * The hand-written splitter against PCRE2 running the regular expressions themselves, over all
 * assigned code points in several contexts and over random strings. */
#include "text/tokenizer_test.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <utf8proc.h>
#include "text/split.h"
#include "text/utf8.h"

#define FOLDED "(?i:'s|'t|'re|'ve|'m|'ll|'d)|"
#define SPELLED "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|"
#define QWEN2 "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
#define QWEN35 "[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*"
#define SPACES "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static const char *const regexes[] = {
    FOLDED QWEN2 SPACES,
    FOLDED QWEN35 SPACES,
    SPELLED QWEN2 SPACES,
    SPELLED QWEN35 SPACES,
};
enum { N_REGEXES = sizeof regexes / sizeof *regexes };

struct oracle {
    struct qrn_split split;
    pcre2_code *code;
    pcre2_match_data *match;
    const char *regex;
};

static void oracle_open(struct oracle *o, const char *regex)
{
    int error;
    PCRE2_SIZE at;
    o->regex = regex;
    o->code = pcre2_compile((PCRE2_SPTR)regex, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &error,
                            &at, NULL);
    assert_non_null(o->code);
    assert_int_equal(pcre2_jit_compile(o->code, PCRE2_JIT_COMPLETE), 0);
    o->match = pcre2_match_data_create_from_pattern(o->code, NULL);
    assert_non_null(o->match);
    assert_true(qrn_split_from_regex((struct qrn_span){regex, strlen(regex)}, &o->split));
}

static void oracle_close(struct oracle *o)
{
    pcre2_match_data_free(o->match);
    pcre2_code_free(o->code);
}

static void fail_at(const struct oracle *o, const char *text, size_t n_bytes, size_t at, size_t got,
                    size_t wanted)
{
    print_message("text");
    for (size_t i = 0, n; i < n_bytes; i += n)
        print_message(" U+%04X", (unsigned)qrn_utf8_first(text + i, &n));
    fail_msg("at byte %zu: got a word of %zu bytes, PCRE2 says %zu, for %s", at, got, wanted,
             o->regex);
}

static void compare(struct oracle *o, const char *text, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes;) {
        const int n_groups = pcre2_match(o->code, (PCRE2_SPTR)text, n_bytes, i,
                                         PCRE2_NO_UTF_CHECK | PCRE2_ANCHORED, o->match, NULL);
        assert_true(n_groups > 0);
        const size_t wanted = pcre2_get_ovector_pointer(o->match)[1] - i;
        const size_t got = qrn_split_first(&o->split, text + i, n_bytes - i);
        if (got != wanted) fail_at(o, text, n_bytes, i, got, wanted);
        i += wanted;
    }
}

/* PCRE2 and utf8proc may be of different versions of Unicode: only code points that both know
 * count.  U+180E is a space for PCRE2's \s, but has not been White_Space since Unicode 6.3. */
struct known {
    bool is_known[0x110000];
    size_t n_known, n_only_one;
};

static void find_known(struct known *k)
{
    int error;
    PCRE2_SIZE at;
    pcre2_code *const code = pcre2_compile((PCRE2_SPTR) "\\p{Cn}", PCRE2_ZERO_TERMINATED,
                                           PCRE2_UTF | PCRE2_UCP, &error, &at, NULL);
    assert_non_null(code);
    pcre2_match_data *const match = pcre2_match_data_create_from_pattern(code, NULL);
    for (int32_t c = 0; c < 0x110000; c++) {
        if (c >= 0xd800 && c < 0xe000) continue;
        char text[4];
        const size_t n = qrn_utf8_put(text, c);
        const bool theirs = pcre2_match(code, (PCRE2_SPTR)text, n, 0, 0, match, NULL) < 0;
        const bool ours = utf8proc_category(c) != UTF8PROC_CATEGORY_CN;
        k->is_known[c] = theirs && ours && c != 0x180e;
        k->n_known += k->is_known[c];
        k->n_only_one += theirs != ours;
    }
    pcre2_match_data_free(match);
    pcre2_code_free(code);
}

static struct known *known_open(void)
{
    struct known *const k = calloc(1, sizeof *k);
    assert_non_null(k);
    find_known(k);
    return k;
}

/* What stands where the code point goes: '@'. */
static const char *const contexts[] = {
    "@",     " @",     "@ ",    "'@",     "@a",      "a@b",   "@@",     " @@ ",  "!@",    "@!",
    "1@1",   "a@",     "'@s",   "'s@",    "\n@",     "@\n",   " \n@\n", "\t@",   "  @",   "@  a",
    "@ @",   " !@a",   "!!@",   "@\r\n!", "\xcc\x81@", "@\xcc\x81", "\xe3\x80\x80@", "@'ll",
};

static size_t place(const char *context, int32_t c, char *text)
{
    size_t n = 0;
    for (; *context; context++) {
        if (*context == '@')
            n += qrn_utf8_put(text + n, c);
        else
            text[n++] = *context;
    }
    return n;
}

static void test_all_code_points(void **state)
{
    (void)state;
    struct known *const k = known_open();
    print_message("%zu code points; %zu known only to PCRE2 or only to utf8proc %s left out\n",
                  k->n_known, k->n_only_one, utf8proc_unicode_version());
    assert_true(k->n_known > 280000);
    for (size_t r = 0; r < N_REGEXES; r++) {
        struct oracle o;
        oracle_open(&o, regexes[r]);
        for (int32_t c = 0; c < 0x110000; c++) {
            if (!k->is_known[c]) continue;
            /* A few contexts will do for most of the 137468 private characters, and for the spelled
             * expressions, which differ only in the contractions. */
            const bool few = (utf8proc_category(c) == UTF8PROC_CATEGORY_CO || r >= 2) && c % 64;
            for (size_t i = 0; i < (few ? 8 : sizeof contexts / sizeof *contexts); i++) {
                char text[32];
                compare(&o, text, place(contexts[i], c, text));
            }
        }
        oracle_close(&o);
    }
    free(k);
}

/* Characters that the expressions tell apart, and any others. */
static int32_t random_character(const struct known *k, uint64_t *seed)
{
    static const int32_t telling[] = {
        ' ',    ' ',    ' ',    '\n',   '\r',   '\t',   '\v',   0x85,   0xa0,    0x3000, 0x2028,
        '\'',   '\'',   's',    'S',    't',    'r',    'E',    'e',    'v',     'm',    'l',
        'L',    'd',    0x17f,  'a',    0xe9,   0x4f60, '1',    0x663,  0x2167,  0xb2,   '!',
        '.',    0x2014, 0x1f642, 0x300, 0x903,  0x20dd, 0x200d, 0,      0xfffd,
    };
    if (random_below(seed, 8)) return telling[random_below(seed, sizeof telling / sizeof *telling)];
    for (;;) {
        const int32_t c = (int32_t)random_below(seed, random_below(seed, 2) ? 0x3000 : 0x110000);
        if (k->is_known[c]) return c;
    }
}

static void test_random_strings(void **state)
{
    (void)state;
    struct known *const k = known_open();
    for (size_t r = 0; r < N_REGEXES; r++) {
        struct oracle o;
        oracle_open(&o, regexes[r]);
        uint64_t seed = 100 + r;
        for (int i = 0; i < 100000; i++) {
            char text[40 * 4];
            size_t n = 0;
            for (size_t left = 1 + random_below(&seed, 40); left; left--)
                n += qrn_utf8_put(text + n, random_character(k, &seed));
            compare(&o, text, n);
        }
        oracle_close(&o);
    }
    free(k);
}

static void test_names(void **state)
{
    (void)state;
    static const char *const unknown[] = {
        "",
        "\\s+",
        FOLDED QWEN2,
        FOLDED QWEN2 SPACES "|x",
        QWEN35 SPACES,
        FOLDED "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" SPACES,
    };
    struct qrn_split split;
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        const struct qrn_span regex = {unknown[i], strlen(unknown[i])};
        assert_false(qrn_split_from_regex(regex, &split));
    }
    assert_true(qrn_split_from_name((struct qrn_span){"qwen2", 5}, &split));
    assert_false(split.has_marks);
    assert_true(qrn_split_from_name((struct qrn_span){"qwen35", 6}, &split));
    assert_true(split.has_marks && split.has_long_s);
    assert_false(qrn_split_from_name((struct qrn_span){"qwen", 4}, &split));
    assert_false(qrn_split_from_name((struct qrn_span){"qwen355", 7}, &split));
    assert_false(qrn_split_from_name((struct qrn_span){NULL, 0}, &split));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_code_points),
        cmocka_unit_test(test_random_strings),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
