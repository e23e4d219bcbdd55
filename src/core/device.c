/* SPDX-License-Identifier: MIT
 * Opening devices; direct calls. */
#include "core/device_impl.h"

#include <string.h>
#include "base/env.h"
#include "base/memory.h"
#include "base/pages.h"

#define QRN_BACKEND(name) extern const struct qrn_backend qrn_backend_##name;
#include "backends/backends.inc"
#undef QRN_BACKEND

static const struct qrn_backend *const backends[] = {
#define QRN_BACKEND(name) &qrn_backend_##name,
#include "backends/backends.inc"
#undef QRN_BACKEND
};

static const struct qrn_kernel *kernel_named(const struct qrn_backend *backend, const char *name,
                                             size_t n)
{
    for (const struct qrn_kernel *const *k = backend->kernels; *k; k++)
        if (strlen((*k)->name) == n && strncmp((*k)->name, name, n) == 0) return *k;
    return NULL;
}

/* "op=kernel,op=kernel": each kernel must exist, be of that op, and run here. */
static enum qrn_status prefer(struct qrn_device *dev, const char *list, struct qrn_error *err)
{
    while (*list) {
        const size_t n = strcspn(list, ","), n_op = strcspn(list, "=,");
        if (n_op == n)
            return qrn_fail(err, QRN_ERR_ARGUMENT, "\"%.*s\" is not op=kernel", (int)n, list);
        const struct qrn_kernel *k = kernel_named(dev->backend, list + n_op + 1, n - n_op - 1);
        if (!k || strlen(qrn_op(k->op)->name) != n_op ||
            strncmp(qrn_op(k->op)->name, list, n_op) != 0)
            return qrn_fail(err, QRN_ERR_ARGUMENT, "\"%.*s\" names no kernel of that op", (int)n,
                            list);
        if (k->needs & ~dev->features)
            return qrn_fail(err, QRN_ERR_UNSUPPORTED, "%s cannot run on this machine", k->name);
        dev->preferred[k->op] = k;
        list += n + (list[n] == ',');
    }
    return QRN_OK;
}

/* What the caller says, else the environment. */
static const char *first_of(const char *option, const char *variable)
{
    return option ? option : variable ? variable : "";
}

enum qrn_status qrn_device_open(const struct qrn_device_options *options, struct qrn_device **out,
                                struct qrn_error *err)
{
    const struct qrn_device_options defaults = {0}, *o = options ? options : &defaults;
    const struct qrn_env env = qrn_env_read();
    const char *name = o->name ? o->name : "cpu";
    const struct qrn_backend *backend = NULL;
    for (size_t i = 0; i < sizeof backends / sizeof *backends; i++)
        if (strcmp(backends[i]->name, name) == 0) backend = backends[i];
    if (!backend) return qrn_fail(err, QRN_ERR_ARGUMENT, "there is no device \"%s\"", name);
    struct qrn_device *dev = qrn_alloc_zeroed(&o->host.allocator, sizeof *dev);
    if (!dev) return qrn_fail_memory(err, sizeof *dev, "a device");
    dev->backend = backend;
    dev->host = o->host;
    if (pthread_mutex_init(&dev->lock, NULL) != 0) {
        qrn_free(&o->host.allocator, dev, sizeof *dev);
        return qrn_fail(err, QRN_ERR_DEVICE, "cannot make a mutex");
    }
    struct qrn_device_options effective = *o;
    effective.cpu_disable = first_of(o->cpu_disable, env.cpu_disable);
    effective.cuda_driver = first_of(o->cuda_driver, env.cuda_driver);
    if (!o->cuda_blas) effective.cuda_blas = env.cuda_blas;
    enum qrn_status status = backend->open(dev, &effective, err);
    if (status == QRN_OK) {
        status = prefer(dev, first_of(o->kernels, env.kernels), err);
        if (status != QRN_OK) backend->close(dev);
    }
    if (status != QRN_OK) {
        pthread_mutex_destroy(&dev->lock);
        qrn_free(&o->host.allocator, dev, sizeof *dev);
        return status;
    }
    *out = dev;
    return QRN_OK;
}

void qrn_device_close(struct qrn_device *dev)
{
    if (!dev) return;
    dev->backend->close(dev);
    pthread_mutex_destroy(&dev->lock);
    const struct qrn_allocator a = dev->host.allocator;
    qrn_free(&a, dev, sizeof *dev);
}

const char *qrn_device_name(const struct qrn_device *dev)
{
    return dev->backend->name;
}

int qrn_device_n_threads(const struct qrn_device *dev)
{
    return dev->n_threads;
}

const char *qrn_device_bits(const struct qrn_device *dev)
{
    return dev->bits;
}

enum qrn_status qrn_kernel_run(struct qrn_device *dev, const struct qrn_kernel *kernel,
                               const void *args, struct qrn_error *err)
{
    const struct qrn_op *op = qrn_op(kernel->op);
    const struct qrn_step step = {.op = op, .kernel = kernel, .args = args, .lane = QRN_ALL_LANES};
    if (op->check_data && qrn_device_host_reads(dev)) QRN_TRY(op->check_data(args, err));
    const size_t scratch = kernel->scratch_bytes ? kernel->scratch_bytes(args, dev->n_threads) : 0;
    pthread_mutex_lock(&dev->lock);
    const enum qrn_status status = dev->backend->execute(dev, &step, 1, scratch, err);
    pthread_mutex_unlock(&dev->lock);
    return status;
}

enum qrn_status qrn_op_queue(struct qrn_device *dev, enum qrn_op_id id, const void *args,
                             struct qrn_error *err)
{
    const struct qrn_op *op = qrn_op(id);
    const struct qrn_kernel *kernel;
    if (!dev->backend->replays) return qrn_op_call(dev, id, args, err);
    QRN_TRY(qrn_op_check(op, args, err));
    QRN_TRY(qrn_kernel_choose(dev, id, args, &kernel, err));
    const struct qrn_step step = {.op = op, .kernel = kernel, .args = args, .lane = QRN_ALL_LANES};
    const size_t scratch = kernel->scratch_bytes ? kernel->scratch_bytes(args, dev->n_threads) : 0;
    pthread_mutex_lock(&dev->lock);
    const enum qrn_status status = dev->backend->replays->queue(dev, &step, 1, scratch, err);
    pthread_mutex_unlock(&dev->lock);
    return status;
}

enum qrn_status qrn_device_upload(struct qrn_device *dev, void *to, const void *from,
                                  size_t n_bytes, struct qrn_error *err)
{
    if (n_bytes == 0) return QRN_OK;
    if (qrn_device_host_reads(dev)) {
        memcpy(to, from, n_bytes);
        return QRN_OK;
    }
    pthread_mutex_lock(&dev->lock);
    const enum qrn_status status = dev->backend->copies->upload(dev, to, from, n_bytes, err);
    pthread_mutex_unlock(&dev->lock);
    return status;
}

enum qrn_status qrn_device_wait(struct qrn_device *dev, struct qrn_error *err)
{
    if (qrn_device_host_reads(dev)) return QRN_OK;
    pthread_mutex_lock(&dev->lock);
    const enum qrn_status status = dev->backend->copies->wait(dev, err);
    pthread_mutex_unlock(&dev->lock);
    return status;
}

enum qrn_status qrn_device_copy_shared(struct qrn_device *dev, struct qrn_shared_copy copy,
                                       struct qrn_error *err)
{
    pthread_mutex_lock(&dev->lock);
    const enum qrn_status status = dev->backend->replays->copy_shared(dev, copy, err);
    pthread_mutex_unlock(&dev->lock);
    return status;
}

enum qrn_status qrn_device_note(struct qrn_device *dev, int turn, struct qrn_error *err)
{
    pthread_mutex_lock(&dev->lock);
    const enum qrn_status status = dev->backend->replays->note(dev, turn, err);
    pthread_mutex_unlock(&dev->lock);
    return status;
}

enum qrn_status qrn_device_wait_noted(struct qrn_device *dev, int turn, struct qrn_error *err)
{
    pthread_mutex_lock(&dev->lock);
    const enum qrn_status status = dev->backend->replays->wait_noted(dev, turn, err);
    pthread_mutex_unlock(&dev->lock);
    return status;
}

enum qrn_status qrn_device_memory(struct qrn_device *dev, size_t *n_free, size_t *n_total,
                                  struct qrn_error *err)
{
    *n_free = *n_total = 0;
    if (qrn_device_host_reads(dev)) {
        *n_total = qrn_machine_memory();
        return QRN_OK;
    }
    pthread_mutex_lock(&dev->lock);
    const enum qrn_status status = dev->backend->copies->memory(dev, n_free, n_total, err);
    pthread_mutex_unlock(&dev->lock);
    return status;
}

const char *qrn_device_model(const struct qrn_device *dev)
{
    return dev->model;
}

enum qrn_status qrn_op_call(struct qrn_device *dev, enum qrn_op_id id, const void *args,
                            struct qrn_error *err)
{
    const struct qrn_op *op = qrn_op(id);
    const struct qrn_kernel *kernel;
    QRN_TRY(qrn_op_check(op, args, err));
    QRN_TRY(qrn_kernel_choose(dev, id, args, &kernel, err));
    return qrn_kernel_run(dev, kernel, args, err);
}
