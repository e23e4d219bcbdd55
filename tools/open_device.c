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

enum { N_DEVICES = sizeof devices / sizeof *devices };

int choose_devices(const struct options *o, const char *names[MAX_DEVICE_NAMES], size_t *n)
{
    _Static_assert((int)N_DEVICES <= (int)MAX_DEVICE_NAMES, "room for all");
    *n = 0;
    const bool any = strcmp(o->device, "auto") == 0;
    for (size_t i = N_DEVICES; i-- > 0;)
        if (any || strcmp(o->device, devices[i]) == 0) names[(*n)++] = devices[i];
    if (*n == 0) return fail("this build has no device \"%s\"; it has %s", o->device, known);
    return EXIT_OK;
}

enum qrn_status open_device_named(const struct options *o, const char *name,
                                  struct qrn_device **out, struct qrn_error *err)
{
    const struct qrn_device_options device_options = {
        .name = name,
        .n_threads = (int)o->threads,
        .host.logger = report_logger(o->verbose),
        .amx = (enum qrn_amx)o->amx,
        .cuda_apart = o->apart,
        .cuda_alone = true};
    return qrn_device_open(&device_options, out, err);
}

int open_device(const struct options *o, struct qrn_device **out)
{
    const char *names[MAX_DEVICE_NAMES];
    size_t n;
    struct qrn_error err;
    const int status = choose_devices(o, names, &n);
    if (status != EXIT_OK) return status;
    if (open_device_named(o, names[n - 1], out, &err) != QRN_OK) return fail_with(&err);
    return EXIT_OK;
}
