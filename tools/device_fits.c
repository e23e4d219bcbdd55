/* SPDX-License-Identifier: MIT
 * The devices of this machine, and whether a model fits on each. */
#include "device_fits.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "report.h"

static void note(struct device_fit *f, const struct qrn_model_info *info)
{
    const size_t room = f->n_free ? f->n_free : f->n_total;
    f->n_needed = info->device_bytes;
    f->n_layers = info->n_device_layers;
    f->n_layers_fit = info->n_layers_fit;
    f->fits = room == 0 || f->n_needed <= room;
}

/* What the model would take of dev. */
static void measure_on(const struct options *o, const struct opened *opened, struct qrn_device *dev,
                       struct device_fit *f)
{
    struct qrn_device *host_device = NULL;
    struct qrn_model *model = NULL;
    if (open_host_device(o, dev, &host_device, &f->reason) != QRN_OK) return;
    struct qrn_model_options options = model_options(o, opened->path, dev, host_device);
    options.only_info = true;
    if (qrn_model_open(&options, &model, &f->reason) == QRN_OK) note(f, qrn_model_info(model));
    qrn_model_close(model);
    qrn_device_close(host_device);
}

static void measure(const struct options *o, const struct opened *opened, struct device_fit *f)
{
    const bool is_open = opened->device && strcmp(qrn_device_name(opened->device), f->name) == 0;
    struct qrn_device *own = NULL, *dev = opened->device;
    if (!is_open && open_device_named(o, f->name, &own, &f->reason) != QRN_OK) return;
    if (own) dev = own;
    snprintf(f->model, sizeof f->model, "%s", qrn_device_model(dev));
    if (qrn_device_memory(dev, &f->n_free, &f->n_total, &f->reason) == QRN_OK) {
        if (is_open && opened->info)
            note(f, opened->info);
        else
            measure_on(o, opened, dev, f);
    }
    qrn_device_close(own);
}

size_t find_device_fits(const struct options *o, const struct opened *opened,
                        struct device_fit fits[MAX_DEVICE_NAMES])
{
    const char *names[MAX_DEVICE_NAMES];
    size_t n;
    if (choose_devices(o, names, &n) != EXIT_OK) return 0;
    for (size_t i = 0; i < n; i++) {
        fits[i] = (struct device_fit){.name = names[i]};
        measure(o, opened, &fits[i]);
    }
    return n;
}

void print_device_fits(const struct device_fit *fits, size_t n)
{
    puts("devices:");
    for (size_t i = 0; i < n; i++) {
        const struct device_fit *f = &fits[i];
        printf("  %-24s%s%s", f->name, f->model, *f->model ? ", " : "");
        if (f->reason.status != QRN_OK) {
            printf("%s\n", f->reason.text);
            continue;
        }
        printf("%s: %.3f GiB needed", f->fits ? "fits" : "does not fit",
               (double)f->n_needed / 0x1p30);
        if (f->n_free) printf(", %.3f GiB free", (double)f->n_free / 0x1p30);
        if (f->n_total) printf(", %.3f GiB in all", (double)f->n_total / 0x1p30);
        if (!f->fits && f->n_layers_fit == 0) printf("; none of its layers would fit");
        if (!f->fits && f->n_layers_fit > 0 && f->n_layers_fit < f->n_layers)
            printf("; --gpu-layers %" PRId64 " would fit", f->n_layers_fit);
        putchar('\n');
    }
}
