/* SPDX-License-Identifier: MIT
 * Device memory: allocated, zeroed, copied, shared with the host; scratch that grows. */
#include "backends/cuda/cuda.h"

#include <stdint.h>
#include "base/memory.h"

/* Addresses of the device are numbers to the driver; core has them as pointers. */
static CUdeviceptr address(const void *memory)
{
    return (CUdeviceptr)(uintptr_t)memory;
}

static void *pointer(CUdeviceptr memory)
{
    return (void *)(uintptr_t)memory; // NOLINT(performance-no-int-to-ptr)
}

/* On the device's stream, under its lock: another thread may be recording there. */
static CUresult zero(struct qrn_cuda *cuda, CUdeviceptr memory, size_t n_bytes)
{
    return cuda->driver.memory_set(memory, 0, n_bytes, cuda->stream);
}

void *qrn_cuda_alloc(struct qrn_device *dev, size_t n_bytes)
{
    struct qrn_cuda *cuda = dev->impl;
    CUdeviceptr memory = 0;
    if (qrn_cuda_enter(cuda, NULL) != QRN_OK) return NULL;
    pthread_mutex_lock(&dev->lock);
    CUresult r = cuda->driver.memory_alloc(&memory, n_bytes);
    if (r == CUDA_SUCCESS) {
        r = zero(cuda, memory, n_bytes);
        if (r != CUDA_SUCCESS) (void)cuda->driver.memory_free(memory);
    }
    (void)qrn_cuda_status(cuda, r, "allocating", NULL);
    pthread_mutex_unlock(&dev->lock);
    qrn_cuda_leave(cuda);
    return r == CUDA_SUCCESS ? pointer(memory) : NULL;
}

void qrn_cuda_free(struct qrn_device *dev, void *memory, size_t n_bytes)
{
    struct qrn_cuda *cuda = dev->impl;
    (void)n_bytes;
    /* Also on a lost device, which gives back nothing until its context goes. */
    if (!memory || cuda->driver.context_push(cuda->context) != CUDA_SUCCESS) return;
    (void)cuda->driver.memory_free(address(memory));
    qrn_cuda_leave(cuda);
}

void qrn_cuda_zero(struct qrn_device *dev, void *memory, size_t n_bytes)
{
    struct qrn_cuda *cuda = dev->impl;
    if (qrn_cuda_enter(cuda, NULL) != QRN_OK) return; /* lost: whatever is next says so */
    pthread_mutex_lock(&dev->lock);
    (void)qrn_cuda_status(cuda, zero(cuda, address(memory), n_bytes), "zeroing", NULL);
    pthread_mutex_unlock(&dev->lock);
    qrn_cuda_leave(cuda);
}

enum qrn_status qrn_cuda_reserve_scratch(struct qrn_cuda *cuda, size_t n_bytes,
                                         struct qrn_error *err)
{
    if (n_bytes <= cuda->scratch_bytes) return QRN_OK;
    const size_t whole = (n_bytes + 255) / 256 * 256,
                 handover = (size_t)cuda->n_multiprocessors * QRN_CUDA_HANDOVER_BYTES + QRN_CUDA_EXCHANGE_BYTES;
    CUdeviceptr bigger = 0;
    QRN_TRY(qrn_cuda_status(cuda, cuda->driver.memory_alloc(&bigger, whole + handover),
                            "scratch memory", err));
    const CUresult r = cuda->driver.memory_set(bigger + whole, 0, handover, cuda->stream);
    if (r != CUDA_SUCCESS) {
        (void)cuda->driver.memory_free(bigger);
        return qrn_cuda_status(cuda, r, "scratch memory", err);
    }
    if (cuda->scratch) { /* what was queued may use it */
        (void)cuda->driver.stream_synchronize(cuda->stream);
        (void)cuda->driver.memory_free(cuda->scratch);
    }
    cuda->scratch = bigger;
    cuda->scratch_bytes = whole;
    cuda->handover = bigger + whole;
    cuda->scratch_generation++;
    return QRN_OK;
}

/* What a copy has returned, once it is done. */
static enum qrn_status finish(struct qrn_cuda *cuda, CUresult r, const char *what,
                              struct qrn_error *err)
{
    if (r == CUDA_SUCCESS) r = cuda->driver.stream_synchronize(cuda->stream);
    const enum qrn_status status = qrn_cuda_status(cuda, r, what, err);
    qrn_cuda_leave(cuda);
    return status;
}

static enum qrn_status upload(struct qrn_device *dev, void *to, const void *from, size_t n_bytes,
                              struct qrn_error *err)
{
    struct qrn_cuda *cuda = dev->impl;
    QRN_TRY(qrn_cuda_enter(cuda, err));
    const CUresult r = cuda->driver.copy_to_device(address(to), from, n_bytes, cuda->stream);
    const enum qrn_status status = qrn_cuda_status(cuda, r, "writing to the device", err);
    qrn_cuda_leave(cuda);
    return status;
}

static enum qrn_status wait_for_all(struct qrn_device *dev, struct qrn_error *err)
{
    struct qrn_cuda *cuda = dev->impl;
    QRN_TRY(qrn_cuda_enter(cuda, err));
    return finish(cuda, CUDA_SUCCESS, "waiting for the device", err);
}

static enum qrn_status memory_left(struct qrn_device *dev, size_t *n_free, size_t *n_total,
                                   struct qrn_error *err)
{
    struct qrn_cuda *cuda = dev->impl;
    QRN_TRY(qrn_cuda_enter(cuda, err));
    const CUresult r = cuda->driver.memory_info(n_free, n_total);
    const enum qrn_status status = qrn_cuda_status(cuda, r, "the device's memory", err);
    qrn_cuda_leave(cuda);
    return status;
}

static enum qrn_status write_bytes(struct qrn_device *dev, void *to, const void *from,
                                   size_t n_bytes, struct qrn_error *err)
{
    struct qrn_cuda *cuda = dev->impl;
    QRN_TRY(qrn_cuda_enter(cuda, err));
    return finish(cuda, cuda->driver.copy_to_device(address(to), from, n_bytes, cuda->stream),
                  "writing a buffer", err);
}

static enum qrn_status read_bytes(struct qrn_device *dev, void *to, const void *from,
                                  size_t n_bytes, struct qrn_error *err)
{
    struct qrn_cuda *cuda = dev->impl;
    QRN_TRY(qrn_cuda_enter(cuda, err));
    return finish(cuda, cuda->driver.copy_to_host(to, address(from), n_bytes, cuda->stream),
                  "reading a buffer", err);
}

enum qrn_status qrn_cuda_queue_copy(struct qrn_device *dev, void *to, const void *from,
                                    size_t n_bytes, struct qrn_error *err)
{
    struct qrn_cuda *cuda = dev->impl;
    QRN_TRY(qrn_cuda_enter(cuda, err));
    const CUresult r = cuda->driver.copy_within(address(to), address(from), n_bytes, cuda->stream);
    const enum qrn_status status = qrn_cuda_status(cuda, r, "copying a buffer", err);
    qrn_cuda_leave(cuda);
    return status;
}

static enum qrn_status copy_bytes(struct qrn_device *dev, void *to, const void *from,
                                  size_t n_bytes, struct qrn_error *err)
{
    QRN_TRY(qrn_cuda_queue_copy(dev, to, from, n_bytes, err));
    return wait_for_all(dev, err);
}

static enum qrn_status share(struct qrn_device *dev, void *begin, size_t n_bytes,
                             struct qrn_error *err)
{
    struct qrn_cuda *cuda = dev->impl;
    QRN_TRY(qrn_cuda_enter(cuda, err));
    const CUresult r = cuda->driver.host_register(
        begin, n_bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
    const enum qrn_status status = qrn_cuda_status(cuda, r, "sharing memory of the host", err);
    qrn_cuda_leave(cuda);
    return status;
}

static void stop_sharing(struct qrn_device *dev, void *begin)
{
    struct qrn_cuda *cuda = dev->impl;
    if (cuda->driver.context_push(cuda->context) != CUDA_SUCCESS) return;
    (void)cuda->driver.host_unregister(begin);
    qrn_cuda_leave(cuda);
}

static enum qrn_status state(struct qrn_device *dev, struct qrn_error *err)
{
    struct qrn_cuda *cuda = dev->impl;
    if (!atomic_load(&cuda->lost)) return QRN_OK;
    return qrn_fail(err, QRN_ERR_DEVICE, "the device is lost: %s",
                    qrn_cuda_text(&cuda->driver, (CUresult)atomic_load(&cuda->lost)));
}

const struct qrn_copies qrn_cuda_copies = {
    .upload = upload,
    .wait = wait_for_all,
    .write = write_bytes,
    .read = read_bytes,
    .within = copy_bytes,
    .share = share,
    .unshare = stop_sharing,
    .state = state,
    .memory = memory_left,
};
