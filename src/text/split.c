/* SPDX-License-Identifier: MIT
 * Cutting text into words.  With L the letters (and marks, for Qwen3.5), N the numbers, s white
 * space, the first of these that matches is taken:
 *
 *     (?i:'s|'t|'re|'ve|'m|'ll|'d)
 *     [^\r\nLN]?L+             in Qwen3.5's spelling the first class leaves marks in: nothing
 *                              changes, as a mark is then taken as the beginning of L+
 *     N
 *      ?[^sLN]+[\r\n]*
 *     \s*[\r\n]+ | \s+(?!\S) | \s+
 *
 * Unicode categories are utf8proc's. */
#include "text/split.h"

#include <string.h>
#include <utf8proc.h>
#include "text/utf8.h"

enum class {
    OTHER,
    LETTER,
    NUMBER,
    SPACE
};

/* One character of the text; n_bytes is 0 at its end. */
struct character {
    int32_t c;
    size_t n_bytes;
    enum class class;
};

static enum class class_of_ascii(int32_t c)
{
    if ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') return LETTER;
    if (c >= '0' && c <= '9') return NUMBER;
    return c == ' ' || (c >= '\t' && c <= '\r') ? SPACE : OTHER;
}

/* The property White_Space. */
static bool is_space(int32_t c)
{
    return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
           c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

static enum class class_of(const struct qrn_split *split, int32_t c)
{
    if (c < 0x80) return class_of_ascii(c);
    if (is_space(c)) return SPACE;
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return LETTER;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME: return split->has_marks ? LETTER : OTHER;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO: return NUMBER;
    default: return OTHER;
    }
}

static struct character at(const struct qrn_split *split, const char *text, size_t n_bytes,
                           size_t i)
{
    struct character a = {.c = -1};
    if (i >= n_bytes) return a;
    a.c = qrn_utf8_first(text + i, &a.n_bytes);
    a.class = class_of(split, a.c);
    return a;
}

static bool is_newline(int32_t c)
{
    return c == '\r' || c == '\n';
}

/* The end of the run of characters of one class that begins at i. */
static size_t run_end(const struct qrn_split *split, const char *text, size_t n_bytes, size_t i,
                      enum class class)
{
    for (;;) {
        const struct character a = at(split, text, n_bytes, i);
        if (!a.n_bytes || a.class != class) return i;
        i += a.n_bytes;
    }
}

/* Bytes of 's 't 'm 'd 're 've 'll at the beginning, whatever the case, or 0. */
static size_t contraction(const struct qrn_split *split, const char *text, size_t n_bytes)
{
    if (n_bytes < 2 || text[0] != '\'') return 0;
    const char a = (char)(text[1] | 0x20);
    if (text[1] >= 'A' && (a == 's' || a == 't' || a == 'm' || a == 'd')) return 2;
    if (n_bytes < 3) return 0;
    if (split->has_long_s && !memcmp(text + 1, "\xc5\xbf", 2)) return 3;
    if (text[1] < 'A' || text[2] < 'A') return 0;
    const char b = (char)(text[2] | 0x20);
    return ((a == 'r' || a == 'v') && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

static size_t white_space(const struct qrn_split *split, const char *text, size_t n_bytes)
{
    size_t i = 0, last = 0, after_newline = 0;
    for (;;) {
        const struct character a = at(split, text, n_bytes, i);
        if (!a.n_bytes || a.class != SPACE) break;
        last = i;
        i += a.n_bytes;
        if (is_newline(a.c)) after_newline = i;
    }
    if (after_newline) return after_newline;
    /* The last character stays for the word that follows. */
    return i == n_bytes || last == 0 ? i : last;
}

size_t qrn_split_first(const struct qrn_split *split, const char *text, size_t n_bytes)
{
    const size_t n = contraction(split, text, n_bytes);
    if (n) return n;
    const struct character a = at(split, text, n_bytes, 0);
    if (a.class == LETTER) return run_end(split, text, n_bytes, a.n_bytes, LETTER);
    if (a.class == NUMBER) return a.n_bytes;
    const struct character b = at(split, text, n_bytes, a.n_bytes);
    if (!is_newline(a.c) && b.class == LETTER && b.n_bytes)
        return run_end(split, text, n_bytes, a.n_bytes + b.n_bytes, LETTER);
    size_t i = 0;
    if (a.class == OTHER)
        i = a.n_bytes;
    else if (a.c == ' ' && b.n_bytes && b.class == OTHER)
        i = a.n_bytes + b.n_bytes;
    else
        return white_space(split, text, n_bytes);
    i = run_end(split, text, n_bytes, i, OTHER);
    while (i < n_bytes && is_newline(text[i])) i++;
    return i;
}

/* --- names --- */

static bool take(struct qrn_span *s, const char *prefix)
{
    const size_t n = strlen(prefix);
    if (s->n_bytes < n || memcmp(s->bytes, prefix, n)) return false;
    *s = (struct qrn_span){s->bytes + n, s->n_bytes - n};
    return true;
}

static bool take_all(struct qrn_span s, const char *text)
{
    return take(&s, text) && !s.n_bytes;
}

bool qrn_split_from_regex(struct qrn_span regex, struct qrn_split *split)
{
    const bool has_long_s = take(&regex, "(?i:'s|'t|'re|'ve|'m|'ll|'d)|");
    if (!has_long_s &&
        !take(&regex, "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|"))
        return false;
    if (!take(&regex, "[^\\r\\n\\p{L}\\p{N}]?")) return false;
    const bool has_marks = !take(&regex, "\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*");
    if (has_marks &&
        !take(&regex, "[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*"))
        return false;
    if (!take_all(regex, "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+")) return false;
    *split = (struct qrn_split){.has_marks = has_marks, .has_long_s = has_long_s};
    return true;
}

bool qrn_split_from_name(struct qrn_span name, struct qrn_split *split)
{
    const bool has_marks = take_all(name, "qwen35");
    if (!has_marks && !take_all(name, "qwen2")) return false;
    *split = (struct qrn_split){.has_marks = has_marks, .has_long_s = true};
    return true;
}
