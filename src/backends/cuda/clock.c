/* SPDX-License-Identifier: MIT
 * How long queued work takes on the device: events of the driver at both ends of it. */
#include "backends/cuda/cuda.h"

static CUresult make_events(struct qrn_cuda *cuda)
{
    for (int i = 0; i < 2; i++) {
        if (cuda->clock[i]) continue;
        const CUresult r = cuda->driver.event_create(&cuda->clock[i], CU_EVENT_DEFAULT);
        if (r != CUDA_SUCCESS) return r;
    }
    return CUDA_SUCCESS;
}

enum qrn_status qrn_cuda_clock_start(struct qrn_device *dev, struct qrn_error *err)
{
    struct qrn_cuda *cuda = dev->impl;
    QRN_TRY(qrn_cuda_enter(cuda, err));
    CUresult r = make_events(cuda);
    if (r == CUDA_SUCCESS) r = cuda->driver.event_record(cuda->clock[0], cuda->stream);
    qrn_cuda_leave(cuda);
    return qrn_cuda_status(cuda, r, "starting the clock", err);
}

enum qrn_status qrn_cuda_clock_stop(struct qrn_device *dev, double *ns, struct qrn_error *err)
{
    struct qrn_cuda *cuda = dev->impl;
    const struct qrn_cuda_driver *d = &cuda->driver;
    float ms = 0.0f;
    QRN_TRY(qrn_cuda_enter(cuda, err));
    CUresult r = d->event_record(cuda->clock[1], cuda->stream);
    if (r == CUDA_SUCCESS) r = d->event_synchronize(cuda->clock[1]);
    if (r == CUDA_SUCCESS) r = d->event_elapsed(&ms, cuda->clock[0], cuda->clock[1]);
    qrn_cuda_leave(cuda);
    *ns = 1e6 * (double)ms;
    return qrn_cuda_status(cuda, r, "reading the clock", err);
}

void qrn_cuda_clock_destroy(struct qrn_cuda *cuda)
{
    for (int i = 0; i < 2; i++)
        if (cuda->clock[i]) (void)cuda->driver.event_destroy(cuda->clock[i]);
}
