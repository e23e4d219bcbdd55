/* SPDX-License-Identifier: MIT
 * Opening the driver: the library, its entry points, its version. */
#include "backends/cuda/driver.h"

#include <dlfcn.h>
#include <string.h>

enum { OLDEST = 12000 }; /* 12.0: graphs and attributes as they are used here */

static const struct {
    const char *symbol;
    size_t offset;
} entries[] = {
#define QRN_CUDA_ENTRY(name, symbol, params) {#symbol, offsetof(struct qrn_cuda_driver, name)},
#include "backends/cuda/driver_api.inc"
#undef QRN_CUDA_ENTRY
};

/* The table says what <cuda.h> says. */
#define QRN_CUDA_ENTRY(name, symbol, params) \
    _Static_assert(_Generic(&symbol, CUresult(*) params : 1, default : 0), #symbol);
#include "backends/cuda/driver_api.inc"
#undef QRN_CUDA_ENTRY

static enum qrn_status open_library(const char *path, struct qrn_cuda_driver *d,
                                    struct qrn_error *err)
{
    const char *name = path && *path ? path : "libcuda.so.1";
    /* The driver keeps threads: it may be given back but not unmapped. */
    d->library = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (d->library) return QRN_OK;
    const char *why = dlerror();
    return qrn_fail(err, QRN_ERR_UNSUPPORTED, "no NVIDIA driver: %s", why ? why : name);
}

/* Version first: an old driver lacks entry points, and that is not what is to be said of it. */
static enum qrn_status check_version(struct qrn_cuda_driver *d, struct qrn_error *err)
{
    CUresult (*version)(int *);
    void *p = dlsym(d->library, "cuDriverGetVersion");
    if (!p)
        return qrn_fail(err, QRN_ERR_UNSUPPORTED, "no NVIDIA driver: it has no cuDriverGetVersion");
    memcpy(&version, &p, sizeof p);
    const CUresult r = version(&d->version);
    if (r != CUDA_SUCCESS)
        return qrn_fail(err, QRN_ERR_DEVICE, "cuDriverGetVersion gives error %d", (int)r);
    if (d->version >= OLDEST) return QRN_OK;
    return qrn_fail(err, QRN_ERR_UNSUPPORTED,
                    "the NVIDIA driver is too old: needs driver %d.%d, found %d.%d", OLDEST / 1000,
                    OLDEST % 1000 / 10, d->version / 1000, d->version % 1000 / 10);
}

static enum qrn_status find_entries(struct qrn_cuda_driver *d, struct qrn_error *err)
{
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        void *p = dlsym(d->library, entries[i].symbol);
        if (!p)
            return qrn_fail(err, QRN_ERR_UNSUPPORTED,
                            "the NVIDIA driver %d.%d has no entry point %s", d->version / 1000,
                            d->version % 1000 / 10, entries[i].symbol);
        memcpy((char *)d + entries[i].offset, &p, sizeof p);
    }
    return QRN_OK;
}

static enum qrn_status initialise(const struct qrn_cuda_driver *d, struct qrn_error *err)
{
    const CUresult r = d->init(0);
    if (r == CUDA_SUCCESS) return QRN_OK;
    return qrn_fail(err, r == CUDA_ERROR_NO_DEVICE ? QRN_ERR_UNSUPPORTED : QRN_ERR_DEVICE,
                    "the NVIDIA driver does not start: %s", qrn_cuda_text(d, r));
}

enum qrn_status qrn_cuda_driver_open(const char *path, struct qrn_cuda_driver *out,
                                     struct qrn_error *err)
{
    struct qrn_cuda_driver d = {0};
    QRN_TRY(open_library(path, &d, err));
    enum qrn_status status = check_version(&d, err);
    if (status == QRN_OK) status = find_entries(&d, err);
    if (status == QRN_OK) status = initialise(&d, err);
    if (status == QRN_OK)
        *out = d;
    else
        qrn_cuda_driver_close(&d);
    return status;
}

void qrn_cuda_driver_close(struct qrn_cuda_driver *d)
{
    if (d->library) (void)dlclose(d->library);
    d->library = NULL;
}

const char *qrn_cuda_text(const struct qrn_cuda_driver *d, CUresult result)
{
    const char *text = NULL;
    if (d->error_string(result, &text) != CUDA_SUCCESS || !text) return "an unknown error";
    return text;
}
