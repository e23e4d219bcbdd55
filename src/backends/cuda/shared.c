/* SPDX-License-Identifier: MIT
 * Small copies from and to memory of the host that the device shares, between recordings: by a kernel, for those of a
 * copy engine, one on each way, take 5 us longer between two tokens (H200); and the event that tells when one is there,
 * without waiting for what was queued since. */
#include "backends/cuda/joints.h"

/* Whole words, up to so many bytes. */
enum { MOST = 1 << 18 };

static CUresult queue_copy(struct qrn_cuda *cuda, void *to, const void *from, size_t n_bytes)
{
    struct qrn_cuda_stream s = {.cuda = cuda};
    union {
        const void *in;
        void *out;
    } x = {.in = from};
    const struct qrn_copy_args a = {
        .x = qrn_tensor_1d(QRN_I32, x.out, (int64_t)(n_bytes / sizeof(int32_t))),
        .out = qrn_tensor_1d(QRN_I32, to, (int64_t)(n_bytes / sizeof(int32_t)))};
    qrn_cuda_copy_rows.run(&s, &a);
    return s.result;
}

static bool is_small(size_t n_bytes)
{
    return n_bytes % sizeof(int32_t) == 0 && n_bytes <= MOST;
}

enum qrn_status qrn_cuda_send(struct qrn_device *dev, void *to, const void *from, size_t n_bytes,
                              struct qrn_error *err)
{
    struct qrn_cuda *cuda = dev->impl;
    QRN_TRY(qrn_cuda_enter(cuda, err));
    const CUresult r = is_small(n_bytes) ? queue_copy(cuda, to, from, n_bytes)
                                         : cuda->driver.copy_to_device((CUdeviceptr)(uintptr_t)to,
                                                                       from, n_bytes, cuda->stream);
    qrn_cuda_leave(cuda);
    return qrn_cuda_status(cuda, r, "writing to the device", err);
}

static CUresult fetch(struct qrn_cuda *cuda, void *to, const void *from, size_t n_bytes,
                      CUevent *event)
{
    const struct qrn_cuda_driver *d = &cuda->driver;
    CUresult r = CUDA_SUCCESS;
    if (!*event) r = d->event_create(event, CU_EVENT_DISABLE_TIMING);
    if (r == CUDA_SUCCESS)
        r = is_small(n_bytes)
                ? queue_copy(cuda, to, from, n_bytes)
                : d->copy_to_host(to, (CUdeviceptr)(uintptr_t)from, n_bytes, cuda->stream);
    return r == CUDA_SUCCESS ? d->event_record(*event, cuda->stream) : r;
}

enum qrn_status qrn_cuda_fetch(struct qrn_device *dev, void *to, const void *from, size_t n_bytes,
                               int turn, struct qrn_error *err)
{
    struct qrn_cuda *cuda = dev->impl;
    QRN_TRY(qrn_cuda_enter(cuda, err));
    const CUresult r = fetch(cuda, to, from, n_bytes, &cuda->fetched[turn]);
    qrn_cuda_leave(cuda);
    return qrn_cuda_status(cuda, r, "reading a buffer", err);
}

enum qrn_status qrn_cuda_wait_fetched(struct qrn_device *dev, int turn, struct qrn_error *err)
{
    struct qrn_cuda *cuda = dev->impl;
    QRN_TRY(qrn_cuda_enter(cuda, err));
    const CUresult r = cuda->driver.event_synchronize(cuda->fetched[turn]);
    qrn_cuda_leave(cuda);
    return qrn_cuda_status(cuda, r, "waiting for what was read", err);
}

void qrn_cuda_fetch_destroy(struct qrn_cuda *cuda)
{
    for (int i = 0; i < 2; i++)
        if (cuda->fetched[i]) (void)cuda->driver.event_destroy(cuda->fetched[i]);
}
