/* SPDX-License-Identifier: MIT
 * JSON on standard output. */
#include "json_out.h"

#include "report.h"

int json_out(json_t *value)
{
    if (!value) return fail("out of memory");
    const int bad = json_dumpf(value, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(10));
    json_decref(value);
    if (bad) return fail("standard output cannot be written");
    putchar('\n');
    return EXIT_OK;
}
