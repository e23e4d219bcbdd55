/* SPDX-License-Identifier: MIT
 * The devices of this machine, and whether a model fits on each. */
#ifndef QUERN_TOOLS_DEVICE_FITS_H
#define QUERN_TOOLS_DEVICE_FITS_H

#include "open_device.h"
#include "open_model.h"

struct device_fit {
    const char *name;               /* "cuda" */
    char model[128];                /* "NVIDIA H200", or "" */
    size_t n_free, n_total;         /* 0: unknown */
    size_t n_needed;                /* 0: the model cannot be run there */
    int64_t n_layers, n_layers_fit; /* of the model there; that would fit */
    bool fits;
    struct qrn_error reason; /* of not opening, or of not running the model; QRN_OK: neither */
};

/* All that --device allows.  opened: the model on one of them, which may have no model. */
size_t find_device_fits(const struct options *options, const struct opened *opened,
                        struct device_fit fits[MAX_DEVICE_NAMES]);

void print_device_fits(const struct device_fit *fits, size_t n);

#endif
