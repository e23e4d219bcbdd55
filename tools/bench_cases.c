/* SPDX-License-Identifier: MIT
 * The table of made-up calls, and what the files that make them share. */
#include "bench_cases.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct bench_row *const tables[] = {bench_rows_matmul, bench_rows_norm, bench_rows_gdn,
                                                 bench_rows_attention, bench_rows_choice};

const struct bench_row *bench_row_at(enum qrn_op_id op, size_t i)
{
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (const struct bench_row *row = tables[t]; row->build; row++)
            if (row->op == op && i-- == 0) return row;
    return NULL;
}

/* Whether only is in name, at its end if it says so by a $. */
static bool is_wanted(const char *name, const char *only)
{
    if (!only) return true;
    const size_t n = strlen(only), n_name = strlen(name);
    if (n == 0 || only[n - 1] != '$') return strstr(name, only) != NULL;
    return n - 1 <= n_name && memcmp(name + n_name - (n - 1), only, n - 1) == 0;
}

/* The row with other sizes, if it is wanted. */
static bool resize(const struct bench_row *row, const struct bench_memory *m, struct bench_row *out)
{
    struct bench_memory nothing = {.dev = m->dev, .only = "\n"}; /* no name has that */
    struct bench_case named = {.skip = false};
    *out = *row;
    row->build(&nothing, row->size, &named);
    if (!is_wanted(named.name, m->only)) return false;
    for (size_t i = 0; i < m->n_sizes && (int)i < named.n_sizes; i++)
        out->size[(size_t)named.first_size + i] = m->sizes[i];
    return true;
}

bool bench_build(const struct bench_row *row, struct bench_memory *m, struct bench_case *out)
{
    struct bench_row resized;
    memset(out, 0, sizeof *out);
    if (m->n_sizes && !resize(row, m, &resized)) return false;
    if (m->n_sizes) {
        m->only = NULL;
        row = &resized;
    }
    row->build(m, row->size, out);
    return !out->skip && m->status == QRN_OK;
}

/* A name begins with the words that are no numbers; those stand first among the sizes, too. */
static void find_sizes(struct bench_case *c, const char *format)
{
    c->first_size = c->n_sizes = 0;
    for (const char *at = strchr(format, '%'); at; at = strchr(at + 1, '%')) {
        const bool word = at[1] == 's';
        if (word && c->n_sizes == 0) c->first_size++;
        if (!word) c->n_sizes++;
    }
}

bool bench_named(const struct bench_memory *m, struct bench_case *c, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(c->name, sizeof c->name, format, args);
    va_end(args);
    find_sizes(c, format);
    c->skip = !is_wanted(c->name, m->only);
    return !c->skip;
}
