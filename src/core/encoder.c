/* SPDX-License-Identifier: MIT
 * Recording: checked copies of arguments, kernels chosen and places planned once. */
#include <string.h>
#include "base/memory.h"
#include "core/plan.h"

struct qrn_encoder {
    struct qrn_device *dev;
    struct qrn_step *steps;
    size_t n_steps, n_steps_reserved;
    struct qrn_plan plan;
    struct qrn_shared_copy first, last;
    void *recorded;           /* the backend's, see struct qrn_replays */
    struct qrn_error failure; /* status QRN_OK: none */
};

enum qrn_status qrn_encoder_create(struct qrn_device *dev, struct qrn_encoder **out,
                                   struct qrn_error *err)
{
    struct qrn_encoder *enc = qrn_alloc_zeroed(&dev->host.allocator, sizeof *enc);
    if (!enc) return qrn_fail_memory(err, sizeof *enc, "an encoder");
    enc->dev = dev;
    *out = enc;
    return QRN_OK;
}

static void forget_recorded(struct qrn_encoder *enc)
{
    struct qrn_device *dev = enc->dev;
    if (!enc->recorded) return;
    pthread_mutex_lock(&dev->lock);
    dev->backend->replays->forget(dev, enc->recorded);
    pthread_mutex_unlock(&dev->lock);
    enc->recorded = NULL;
}

void qrn_encoder_reset(struct qrn_encoder *enc)
{
    const struct qrn_allocator *a = &enc->dev->host.allocator;
    forget_recorded(enc);
    for (size_t i = 0; i < enc->n_steps; i++) {
        union {
            const void *in;
            void *out;
        } args = {.in = enc->steps[i].args};
        qrn_free(a, args.out, enc->steps[i].op->args_bytes);
    }
    qrn_plan_reset(&enc->plan);
    enc->n_steps = 0;
    enc->first = enc->last = (struct qrn_shared_copy){0};
    enc->failure.status = QRN_OK;
}

void qrn_encoder_set_copies(struct qrn_encoder *enc, struct qrn_shared_copy first,
                            struct qrn_shared_copy last)
{
    enc->first = first;
    enc->last = last;
}

void qrn_encoder_destroy(struct qrn_encoder *enc)
{
    if (!enc) return;
    const struct qrn_allocator *a = &enc->dev->host.allocator;
    qrn_encoder_reset(enc);
    qrn_free(a, enc->steps, enc->n_steps_reserved * sizeof *enc->steps);
    qrn_plan_free(&enc->plan, a);
    qrn_free(a, enc, sizeof *enc);
}

static bool reserve_step(struct qrn_encoder *enc)
{
    if (enc->n_steps < enc->n_steps_reserved) return true;
    const size_t want = (enc->n_steps_reserved + 1) * 2;
    struct qrn_step *bigger =
        qrn_realloc(&enc->dev->host.allocator, enc->steps,
                    enc->n_steps_reserved * sizeof *enc->steps, want * sizeof *enc->steps);
    if (!bigger) return false;
    enc->steps = bigger;
    enc->n_steps_reserved = want;
    return true;
}

static enum qrn_status record(struct qrn_encoder *enc, enum qrn_op_id id, const void *args,
                              struct qrn_error *err)
{
    const struct qrn_allocator *a = &enc->dev->host.allocator;
    const struct qrn_op *op = qrn_op(id);
    const struct qrn_kernel *kernel;
    QRN_TRY(qrn_op_check(op, args, err));
    QRN_TRY(qrn_kernel_choose(enc->dev, id, args, &kernel, err));
    if (!reserve_step(enc)) return qrn_fail_memory(err, sizeof *enc->steps, "a recorded op");
    void *copy = qrn_alloc(a, op->args_bytes);
    if (!copy) return qrn_fail_memory(err, op->args_bytes, "a recorded op");
    memcpy(copy, args, op->args_bytes);
    struct qrn_step *step = &enc->steps[enc->n_steps];
    *step = (struct qrn_step){.op = op, .kernel = kernel, .args = copy};
    if (!qrn_plan_add(&enc->plan, enc->dev, step)) {
        qrn_free(a, copy, op->args_bytes);
        return qrn_fail_memory(err, sizeof(struct qrn_touch) * op->n_operands, "a recorded op");
    }
    enc->n_steps++;
    return QRN_OK;
}

void qrn_op_record(struct qrn_encoder *enc, enum qrn_op_id op, const void *args)
{
    if (enc->failure.status == QRN_OK && record(enc, op, args, &enc->failure) != QRN_OK)
        qrn_error_prefix(&enc->failure, enc->failure.status, "op %zu of the recording",
                         enc->n_steps);
}

/* Numbers inside tensors, but for those that a step writes. */
static enum qrn_status check_data(const struct qrn_encoder *enc, size_t begin, size_t end,
                                  struct qrn_error *err)
{
    for (size_t i = begin; i < end && qrn_device_host_reads(enc->dev); i++) {
        const struct qrn_step *step = &enc->steps[i];
        if (step->op->check_data && !step->check_late)
            QRN_TRY(step->op->check_data(step->args, err));
    }
    return QRN_OK;
}

/* Steps that are queued; if it waits, done, also after a failure: nothing of a call may be under way
 * when it returns. */
static enum qrn_status submit(struct qrn_encoder *enc, size_t begin, size_t end, bool waits,
                              struct qrn_error *err)
{
    if (enc->failure.status != QRN_OK) {
        if (err) *err = enc->failure;
        return enc->failure.status;
    }
    if (begin == end) return QRN_OK;
    QRN_TRY(check_data(enc, begin, end, err));
    struct qrn_device *dev = enc->dev;
    const struct qrn_backend *b = dev->backend;
    const struct qrn_recording r = {.steps = enc->steps,
                                    .n_steps = enc->n_steps,
                                    .scratch_bytes = enc->plan.scratch_bytes,
                                    .first = enc->first,
                                    .last = enc->last};
    enum qrn_status status;
    pthread_mutex_lock(&dev->lock);
    if (b->replays) {
        status = b->replays->submit(dev, &r, begin, end, &enc->recorded, err);
        if (waits) {
            const enum qrn_status waited = b->copies->wait(dev, status == QRN_OK ? err : NULL);
            if (status == QRN_OK) status = waited;
        }
    } else {
        status = b->execute(dev, r.steps + begin, end - begin, r.scratch_bytes, err);
    }
    pthread_mutex_unlock(&dev->lock);
    return status;
}

enum qrn_status qrn_encoder_submit_range(struct qrn_encoder *enc, size_t begin, size_t end,
                                         struct qrn_error *err)
{
    return submit(enc, begin, end, true, err);
}

enum qrn_status qrn_encoder_queue_range(struct qrn_encoder *enc, size_t begin, size_t end,
                                        struct qrn_error *err)
{
    return submit(enc, begin, end, false, err);
}

enum qrn_status qrn_encoder_submit(struct qrn_encoder *enc, struct qrn_error *err)
{
    return qrn_encoder_submit_range(enc, 0, enc->n_steps, err);
}

enum qrn_status qrn_encoder_wait(struct qrn_encoder *enc, struct qrn_error *err)
{
    (void)err;
    return enc->failure.status;
}

size_t qrn_encoder_n_ops(const struct qrn_encoder *enc)
{
    return enc->n_steps;
}
