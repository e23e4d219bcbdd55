/* SPDX-License-Identifier: MIT
 * A GPU as a device: opening it, its context, its features, what its failures mean. */
#include "backends/cuda/cuda.h"

#include <stdio.h>
#include "backends/cuda/cublaslt.h"
#include "backends/cuda/shared.h"
#include "base/memory.h"

#define QRN_KERNEL(op, variant) extern const struct qrn_kernel qrn_cuda_##op##_##variant;
#include "backends/cuda/kernels.inc"
#undef QRN_KERNEL

static const struct qrn_kernel *const kernels[] = {
#define QRN_KERNEL(op, variant) &qrn_cuda_##op##_##variant,
#include "backends/cuda/kernels.inc"
#undef QRN_KERNEL
    NULL,
};

/* After these the context is of no use: what was running has failed, and so does all that
 * follows. */
static bool is_fatal(CUresult r)
{
    switch (r) {
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_INVALID_CONTEXT:
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_UNKNOWN:
        return true;
    default:
        return false;
    }
}

static enum qrn_status fail_lost(struct qrn_cuda *cuda, struct qrn_error *err)
{
    return qrn_fail(err, QRN_ERR_DEVICE, "the device is lost: %s",
                    qrn_cuda_text(&cuda->driver, (CUresult)atomic_load(&cuda->lost)));
}

enum qrn_status qrn_cuda_status(struct qrn_cuda *cuda, CUresult result, const char *what,
                                struct qrn_error *err)
{
    if (result == CUDA_SUCCESS) return QRN_OK;
    if (is_fatal(result)) {
        atomic_store(&cuda->lost, (int)result);
        return qrn_fail(err, QRN_ERR_DEVICE, "the device is lost: %s (%s)",
                        qrn_cuda_text(&cuda->driver, result), what);
    }
    return qrn_fail(err, result == CUDA_ERROR_OUT_OF_MEMORY ? QRN_ERR_MEMORY : QRN_ERR_DEVICE,
                    "cuda, %s: %s", what, qrn_cuda_text(&cuda->driver, result));
}

enum qrn_status qrn_cuda_enter(struct qrn_cuda *cuda, struct qrn_error *err)
{
    if (atomic_load(&cuda->lost)) return fail_lost(cuda, err);
    return qrn_cuda_status(cuda, cuda->driver.context_push(cuda->context), "entering the context",
                           err);
}

void qrn_cuda_leave(struct qrn_cuda *cuda)
{
    CUcontext ours;
    (void)cuda->driver.context_pop(&ours);
}

static enum qrn_status find_context(struct qrn_cuda *cuda, const struct qrn_device_options *o,
                                    struct qrn_error *err)
{
    const struct qrn_cuda_driver *d = &cuda->driver;
    int n = 0;
    if (o->cuda_context) {
        cuda->context = o->cuda_context;
        QRN_TRY(qrn_cuda_enter(cuda, err));
        const CUresult r = d->context_device(&cuda->device);
        qrn_cuda_leave(cuda);
        return qrn_cuda_status(cuda, r, "the context given", err);
    }
    QRN_TRY(qrn_cuda_status(cuda, d->device_count(&n), "counting the devices", err));
    if (n == 0) return qrn_fail(err, QRN_ERR_UNSUPPORTED, "cuda: the driver sees no device");
    if (o->cuda_device < 0 || o->cuda_device >= n)
        return qrn_fail(err, QRN_ERR_ARGUMENT, "cuda_device is %d, wants 0 to %d", o->cuda_device,
                        n - 1);
    QRN_TRY(qrn_cuda_status(cuda, d->device_get(&cuda->device, o->cuda_device), "the device", err));
    QRN_TRY(qrn_cuda_status(cuda, d->primary_retain(&cuda->context, cuda->device),
                            "the device's context", err));
    cuda->owns_context = true;
    return QRN_OK;
}

static enum qrn_status find_features(struct qrn_cuda *cuda, struct qrn_device *dev,
                                     struct qrn_error *err)
{
    const struct qrn_cuda_driver *d = &cuda->driver;
    static const CUdevice_attribute asked[] = {
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
        CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING};
    int value[4] = {0};
    for (int i = 0; i < 4; i++)
        QRN_TRY(qrn_cuda_status(cuda, d->device_attribute(&value[i], asked[i], cuda->device),
                                "the device's attributes", err));
    if (value[0] < 8)
        return qrn_fail(err, QRN_ERR_UNSUPPORTED,
                        "cuda: the device has compute capability %d.%d, needs 8.0", value[0],
                        value[1]);
    if (!value[3])
        return qrn_fail(err, QRN_ERR_UNSUPPORTED, "cuda: the device has no unified addresses");
    cuda->capability = 10 * value[0] + value[1];
    cuda->n_multiprocessors = value[2];
    dev->features = QRN_CUDA_SM80;
    if (cuda->capability == 90) dev->features |= QRN_CUDA_SM90;
    if (cuda->capability == 100) dev->features |= QRN_CUDA_SM100;
    cuda->overlaps = dev->features & (QRN_CUDA_SM90 | QRN_CUDA_SM100);
    dev->n_threads = 1;
    if (d->device_name(dev->model, (int)sizeof dev->model, cuda->device) != CUDA_SUCCESS)
        dev->model[0] = '\0';
    (void)snprintf(dev->bits, sizeof dev->bits, "cuda sm_%d", cuda->capability);
    return QRN_OK;
}

/* A driver that does not know may serve several processes. */
static bool is_alone(const struct qrn_cuda *cuda, const struct qrn_device_options *o)
{
    int mps = 1;
    if (!o->cuda_alone || !cuda->owns_context) return false;
    return cuda->driver.device_attribute(&mps, CU_DEVICE_ATTRIBUTE_MPS_ENABLED, cuda->device) ==
               CUDA_SUCCESS &&
           !mps;
}

static enum qrn_status find_stream(struct qrn_cuda *cuda, const struct qrn_device_options *o,
                                   struct qrn_error *err)
{
    cuda->stream = o->cuda_stream;
    if (cuda->stream) return QRN_OK;
    QRN_TRY(qrn_cuda_enter(cuda, err));
    const CUresult r = cuda->driver.stream_create(&cuda->stream, CU_STREAM_NON_BLOCKING);
    qrn_cuda_leave(cuda);
    cuda->owns_stream = r == CUDA_SUCCESS;
    return qrn_cuda_status(cuda, r, "making a stream", err);
}

static enum qrn_status open_blas(struct qrn_cuda *cuda, struct qrn_device *dev, const char *path,
                                 struct qrn_error *err)
{
    QRN_TRY(qrn_cuda_blas_open(cuda, path, err));
    dev->features |= QRN_CUDA_BLAS;
    (void)snprintf(dev->bits, sizeof dev->bits, "cuda sm_%d cublaslt %zu", cuda->capability,
                   cuda->blas->version());
    return QRN_OK;
}

/* A library that is named has to work.  Without a name those of the system are tried where
 * matmul.wgmma is not to be had, and the driver is the system's, too: the library knows no other. */
static enum qrn_status find_blas(struct qrn_cuda *cuda, struct qrn_device *dev,
                                 const struct qrn_device_options *o, struct qrn_error *err)
{
    static const char *const usual[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"};
    const bool tries = !*o->cuda_driver && !(dev->features & QRN_CUDA_SM90);
    enum qrn_status status = QRN_OK;
    if (o->cuda_blas ? !*o->cuda_blas : !tries) return QRN_OK;
    QRN_TRY(qrn_cuda_enter(cuda, err));
    if (o->cuda_blas)
        status = open_blas(cuda, dev, o->cuda_blas, err);
    else
        for (size_t i = 0; i < sizeof usual / sizeof *usual && !cuda->blas; i++)
            (void)open_blas(cuda, dev, usual[i], NULL);
    qrn_cuda_leave(cuda);
    return status;
}

/* Gives back what was got, as far as it was; on a lost device the driver refuses, and that is
 * all. */
static void give_back(struct qrn_cuda *cuda)
{
    const struct qrn_cuda_driver *d = &cuda->driver;
    if (cuda->context && d->context_push(cuda->context) == CUDA_SUCCESS) {
        qrn_cuda_blas_close(cuda);
        qrn_cuda_functions_destroy(cuda);
        qrn_cuda_clock_destroy(cuda);
        qrn_cuda_notes_destroy(cuda);
        if (cuda->scratch) (void)d->memory_free(cuda->scratch);
        if (cuda->owns_stream) (void)d->stream_destroy(cuda->stream);
        qrn_cuda_leave(cuda);
    }
    if (cuda->owns_context) (void)d->primary_release(cuda->device);
    qrn_cuda_driver_close(&cuda->driver);
}

static enum qrn_status cuda_open(struct qrn_device *dev, const struct qrn_device_options *o,
                                 struct qrn_error *err)
{
    const struct qrn_allocator *a = &dev->host.allocator;
    struct qrn_cuda *cuda = qrn_alloc_zeroed(a, sizeof *cuda);
    if (!cuda) return qrn_fail_memory(err, sizeof *cuda, "a device");
    cuda->allocator = a;
    cuda->joins = !o->cuda_apart;
    enum qrn_status status = qrn_cuda_driver_open(o->cuda_driver, &cuda->driver, err);
    if (status == QRN_OK) {
        status = find_context(cuda, o, err);
        if (status == QRN_OK) status = find_features(cuda, dev, err);
        if (status == QRN_OK) cuda->alone = is_alone(cuda, o);
        if (status == QRN_OK) status = find_stream(cuda, o, err);
        if (status == QRN_OK) status = qrn_cuda_functions_create(cuda, err);
        if (status == QRN_OK) status = find_blas(cuda, dev, o, err);
        if (status != QRN_OK) give_back(cuda);
    }
    if (status != QRN_OK) {
        qrn_free(a, cuda, sizeof *cuda);
        return status;
    }
    dev->impl = cuda;
    return QRN_OK;
}

static void cuda_close(struct qrn_device *dev)
{
    struct qrn_cuda *cuda = dev->impl;
    give_back(cuda);
    qrn_free(&dev->host.allocator, cuda, sizeof *cuda);
}

static const char *feature_name(int bit)
{
    static const char *const names[] = {"sm_80", "sm_90", "sm_100", "cublaslt"};
    return bit < (int)(sizeof names / sizeof *names) ? names[bit] : NULL;
}

const struct qrn_backend qrn_backend_cuda = {
    .name = "cuda",
    .kernels = kernels,
    .open = cuda_open,
    .close = cuda_close,
    .execute = qrn_cuda_execute,
    .alloc = qrn_cuda_alloc,
    .free = qrn_cuda_free,
    .zero = qrn_cuda_zero,
    .feature_name = feature_name,
    .copies = &qrn_cuda_copies,
    .replays = &qrn_cuda_replays,
};
