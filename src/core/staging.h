/* SPDX-License-Identifier: MIT
 * Memory of the host that a device copies from and to while the host goes on: pinned, where the device
 * offers that and the system grants it. */
#ifndef QUERN_CORE_STAGING_H
#define QUERN_CORE_STAGING_H

#include "core/device_impl.h"

struct qrn_staging {
    struct qrn_device *dev;
    char *bytes; /* begins a page */
    size_t n_bytes;
    void *memory;
    size_t n_memory;
    bool shared;
};

/* n_bytes > 0, zeroed.  Errors: QRN_ERR_MEMORY. */
enum qrn_status qrn_staging_create(struct qrn_device *dev, size_t n_bytes, struct qrn_staging *out,
                                   struct qrn_error *err);
/* The device has been waited for.  Zeroed structs are allowed. */
void qrn_staging_free(struct qrn_staging *s);

#endif
