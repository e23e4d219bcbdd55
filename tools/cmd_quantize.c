/* SPDX-License-Identifier: MIT
 * quern quantize: write a model as GGUF of another type. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include <quern/quantize.h>

#include "options.h"
#include "progress.h"
#include "report.h"

static bool is_type(const char *name)
{
    const char *type;
    for (size_t i = 0; (type = qrn_quantize_type(i)); i++)
        if (strcasecmp(type, name) == 0) return true;
    return false;
}

static int unknown_type(const char *name)
{
    char types[600] = "";
    const char *type;
    for (size_t i = 0; (type = qrn_quantize_type(i)); i++) {
        const size_t used = strlen(types);
        snprintf(types + used, sizeof types - used, "%s%s", i ? " " : "", type);
    }
    return fail_usage("quantize", "TYPE is \"%s\", wants one of %s", name, types);
}

int cmd_quantize(const struct options *o)
{
    const struct qrn_quantize_options options = {
        .path = o->arguments[0],
        .out_path = o->arguments[1],
        .type = o->arguments[2],
        .pure = o->pure,
        .host.logger = report_logger(o->verbose),
        .progress = progress_step,
    };
    if (!is_type(options.type)) return unknown_type(options.type);
    catch_interrupt();
    struct qrn_error err;
    progress_begin("quantizing");
    const enum qrn_status s = qrn_quantize(&options, &err);
    progress_end();
    return s == QRN_OK ? EXIT_OK : fail_with(&err);
}
