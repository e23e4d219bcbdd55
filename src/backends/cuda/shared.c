/* SPDX-License-Identifier: MIT
 * Copies with memory of the host that the device shares; notes. */
#include "backends/cuda/shared.h"

#include "backends/cuda/joints.h"

void qrn_cuda_launch_copy(struct qrn_cuda_stream *s, const struct qrn_shared_copy *copy)
{
    union {
        const void *in;
        void *out;
    } x = {.in = copy->from};
    const int64_t n = (int64_t)(copy->n_bytes / sizeof(int32_t));
    const struct qrn_copy_args a = {.x = qrn_tensor_1d(QRN_I32, x.out, n),
                                    .out = qrn_tensor_1d(QRN_I32, copy->to, n)};
    if (n > 0) qrn_cuda_copy_rows.run(s, &a);
}

enum qrn_status qrn_cuda_copy_shared(struct qrn_device *dev, struct qrn_shared_copy copy,
                                     struct qrn_error *err)
{
    struct qrn_cuda *cuda = dev->impl;
    struct qrn_cuda_stream s = {.cuda = cuda};
    QRN_TRY(qrn_cuda_enter(cuda, err));
    qrn_cuda_launch_copy(&s, &copy);
    qrn_cuda_leave(cuda);
    return qrn_cuda_status(cuda, s.result, "copying with the host", err);
}

static CUresult note(const struct qrn_cuda *cuda, CUevent *event)
{
    const struct qrn_cuda_driver *d = &cuda->driver;
    CUresult r = CUDA_SUCCESS;
    if (!*event) r = d->event_create(event, CU_EVENT_DISABLE_TIMING);
    return r == CUDA_SUCCESS ? d->event_record(*event, cuda->stream) : r;
}

enum qrn_status qrn_cuda_note(struct qrn_device *dev, int turn, struct qrn_error *err)
{
    struct qrn_cuda *cuda = dev->impl;
    QRN_TRY(qrn_cuda_enter(cuda, err));
    const CUresult r = note(cuda, &cuda->noted[turn]);
    qrn_cuda_leave(cuda);
    return qrn_cuda_status(cuda, r, "noting how far the device is", err);
}

enum qrn_status qrn_cuda_wait_noted(struct qrn_device *dev, int turn, struct qrn_error *err)
{
    struct qrn_cuda *cuda = dev->impl;
    QRN_TRY(qrn_cuda_enter(cuda, err));
    const CUresult r = cuda->driver.event_synchronize(cuda->noted[turn]);
    qrn_cuda_leave(cuda);
    return qrn_cuda_status(cuda, r, "waiting for the device", err);
}

void qrn_cuda_notes_destroy(struct qrn_cuda *cuda)
{
    for (int i = 0; i < 2; i++)
        if (cuda->noted[i]) (void)cuda->driver.event_destroy(cuda->noted[i]);
}
