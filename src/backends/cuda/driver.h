/* SPDX-License-Identifier: MIT
 * NVIDIA's driver library, opened at run time: one binary serves machines with and without it. */
#ifndef QUERN_BACKENDS_CUDA_DRIVER_H
#define QUERN_BACKENDS_CUDA_DRIVER_H

#include <cuda.h>
#include "base/error.h"

struct qrn_cuda_driver {
    void *library;
    int version; /* 12020: 12.2 */
#define QRN_CUDA_ENTRY(name, symbol, params) CUresult(*name) params;
#include "backends/cuda/driver_api.inc"
#undef QRN_CUDA_ENTRY
};

/* Opens the library at path ("": where the system finds it) and its entry points, and initialises
 * it.  Errors: QRN_ERR_UNSUPPORTED (not there, too old, no GPU), QRN_ERR_DEVICE (it fails). */
enum qrn_status qrn_cuda_driver_open(const char *path, struct qrn_cuda_driver *out,
                                     struct qrn_error *err);
void qrn_cuda_driver_close(struct qrn_cuda_driver *driver);

/* The driver's words for a result; static. */
const char *qrn_cuda_text(const struct qrn_cuda_driver *driver, CUresult result);

#endif
