/* SPDX-License-Identifier: MIT
 * Timing by the device's clock: recordings and copies. */
#include "core/timing.h"

#include "base/memory.h"

struct qrn_timing {
    struct qrn_device *dev;
    struct qrn_step *steps;
    size_t n;
    size_t scratch_bytes;
    void *recorded; /* the backend's */
    bool is_warm;   /* launched as a recording */
};

bool qrn_device_has_clock(const struct qrn_device *dev)
{
    return dev->backend->replays && dev->backend->replays->clock_start;
}

static enum qrn_status submit(struct qrn_timing *t, struct qrn_error *err)
{
    const struct qrn_recording r = {
        .steps = t->steps, .n_steps = t->n, .scratch_bytes = t->scratch_bytes};
    return t->dev->backend->replays->submit(t->dev, &r, 0, t->n, &t->recorded, err);
}

/* Also after a failure, so that nothing is under way; the first failure counts. */
static enum qrn_status wait(struct qrn_device *dev, enum qrn_status status, struct qrn_error *err)
{
    const enum qrn_status waited = dev->backend->copies->wait(dev, status == QRN_OK ? err : NULL);
    return status == QRN_OK ? waited : status;
}

static void fill_steps(struct qrn_timing *t, const struct qrn_kernel *kernel,
                       const void *const *args)
{
    for (size_t i = 0; i < t->n; i++) {
        t->steps[i] = (struct qrn_step){
            .op = qrn_op(kernel->op), .kernel = kernel, .args = args[i], .lane = QRN_ALL_LANES};
        const size_t scratch =
            kernel->scratch_bytes ? kernel->scratch_bytes(args[i], t->dev->n_threads) : 0;
        if (scratch > t->scratch_bytes) t->scratch_bytes = scratch;
    }
}

enum qrn_status qrn_timing_create(struct qrn_device *dev, const struct qrn_kernel *kernel,
                                  const void *const *args, size_t n, struct qrn_timing **out,
                                  struct qrn_error *err)
{
    const struct qrn_allocator *a = &dev->host.allocator;
    struct qrn_timing *t = qrn_alloc_zeroed(a, sizeof *t);
    if (!t) return qrn_fail_memory(err, sizeof *t, "a timing");
    *t = (struct qrn_timing){.dev = dev, .n = n};
    t->steps = qrn_alloc(a, n * sizeof *t->steps);
    enum qrn_status status = QRN_OK;
    if (!t->steps) {
        status = qrn_fail_memory(err, n * sizeof *t->steps, "a timing");
    } else {
        fill_steps(t, kernel, args);
        pthread_mutex_lock(&dev->lock);
        status = wait(dev, submit(t, err), err);
        pthread_mutex_unlock(&dev->lock);
    }
    if (status == QRN_OK)
        *out = t;
    else
        qrn_timing_destroy(t);
    return status;
}

static enum qrn_status run(struct qrn_timing *t, bool behind, double *ns, struct qrn_error *err)
{
    const struct qrn_replays *r = t->dev->backend->replays;
    if (behind || !t->is_warm) QRN_TRY(submit(t, err));
    if (!t->is_warm && !behind) QRN_TRY(t->dev->backend->copies->wait(t->dev, err));
    t->is_warm = true;
    QRN_TRY(r->clock_start(t->dev, err));
    QRN_TRY(submit(t, err));
    return r->clock_stop(t->dev, ns, err);
}

enum qrn_status qrn_timing_run(struct qrn_timing *t, bool behind, double *ns, struct qrn_error *err)
{
    pthread_mutex_lock(&t->dev->lock);
    enum qrn_status status = run(t, behind, ns, err);
    if (status != QRN_OK) status = wait(t->dev, status, err);
    pthread_mutex_unlock(&t->dev->lock);
    return status;
}

void qrn_timing_destroy(struct qrn_timing *t)
{
    if (!t) return;
    struct qrn_device *dev = t->dev;
    pthread_mutex_lock(&dev->lock);
    if (t->recorded) dev->backend->replays->forget(dev, t->recorded);
    pthread_mutex_unlock(&dev->lock);
    qrn_free(&dev->host.allocator, t->steps, t->n * sizeof *t->steps);
    qrn_free(&dev->host.allocator, t, sizeof *t);
}

static enum qrn_status copies(struct qrn_device *dev, void *a, void *b, size_t n_bytes, int n_times,
                              double *ns, struct qrn_error *err)
{
    const struct qrn_replays *r = dev->backend->replays;
    QRN_TRY(r->copy(dev, a, b, n_bytes, err));
    QRN_TRY(r->clock_start(dev, err));
    for (int i = 0; i < n_times; i++)
        QRN_TRY(r->copy(dev, i % 2 ? a : b, i % 2 ? b : a, n_bytes, err));
    return r->clock_stop(dev, ns, err);
}

enum qrn_status qrn_time_copies(struct qrn_device *dev, void *a, void *b, size_t n_bytes,
                                int n_times, double *ns, struct qrn_error *err)
{
    pthread_mutex_lock(&dev->lock);
    enum qrn_status status = copies(dev, a, b, n_bytes, n_times, ns, err);
    if (status != QRN_OK) status = wait(dev, status, err);
    pthread_mutex_unlock(&dev->lock);
    return status;
}
