/* SPDX-License-Identifier: MIT
 * The device that the options ask for. */
#include "open_device.h"

#include <string.h>

#include "report.h"

static const char *const devices[] = {
#define QRN_BACKEND(name) #name,
#include "backends/backends.inc"
#undef QRN_BACKEND
};

#define QRN_BACKEND(name) ", " #name
static const char known[] = "auto"
#include "backends/backends.inc"
    ;
#undef QRN_BACKEND

int open_device(const struct options *o, struct qrn_device **out)
{
    const char *name = strcmp(o->device, "auto") == 0 ? devices[0] : NULL;
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++)
        if (strcmp(o->device, devices[i]) == 0) name = devices[i];
    if (!name) return fail("this build has no device \"%s\"; it has %s", o->device, known);
    const struct qrn_device_options device_options = {
        .name = name,
        .n_threads = (int)o->threads,
        .host.logger = report_logger(o->verbose),
        .amx = (enum qrn_amx)o->amx};
    struct qrn_error err;
    if (qrn_device_open(&device_options, out, &err) != QRN_OK) return fail_with(&err);
    return EXIT_OK;
}
