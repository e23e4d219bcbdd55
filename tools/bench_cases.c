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

bool bench_build(const struct bench_row *row, struct bench_memory *m, struct bench_case *out)
{
    memset(out, 0, sizeof *out);
    row->build(m, row->size, out);
    return !out->skip && m->status == QRN_OK;
}

bool bench_named(const struct bench_memory *m, struct bench_case *c, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(c->name, sizeof c->name, format, args);
    va_end(args);
    c->skip = m->only && !strstr(c->name, m->only);
    return !c->skip;
}

struct qrn_tensor bench_seq_begin(struct bench_memory *m, int64_t n_tokens)
{
    const struct qrn_tensor t = bench_ints(m, 2, 0);
    if (t.data) ((int32_t *)t.data)[1] = (int32_t)n_tokens;
    return t;
}

struct qrn_tensor bench_one_int(struct bench_memory *m, int64_t value)
{
    const struct qrn_tensor t = bench_ints(m, 1, 0);
    if (t.data) *(int32_t *)t.data = (int32_t)value;
    return t;
}
