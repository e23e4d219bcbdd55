/* SPDX-License-Identifier: MIT
 * Recording: checked copies of arguments, kernels chosen once, waits only where ops touch. */
#include <string.h>
#include "base/memory.h"
#include "core/device_impl.h"

struct range {
    uintptr_t begin, end; /* half open; everything: 0, UINTPTR_MAX */
    bool written;
};

struct qrn_encoder {
    struct qrn_device *dev;
    struct qrn_step *steps;
    size_t n_steps, n_steps_reserved;
    struct range *ranges; /* touched since the last wait */
    size_t n_ranges, n_ranges_reserved;
    size_t scratch_bytes;
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

void qrn_encoder_reset(struct qrn_encoder *enc)
{
    const struct qrn_allocator *a = &enc->dev->host.allocator;
    for (size_t i = 0; i < enc->n_steps; i++) {
        union {
            const void *in;
            void *out;
        } args = {.in = enc->steps[i].args};
        qrn_free(a, args.out, enc->steps[i].op->args_bytes);
    }
    enc->n_steps = enc->n_ranges = enc->scratch_bytes = 0;
    enc->failure.status = QRN_OK;
}

void qrn_encoder_destroy(struct qrn_encoder *enc)
{
    if (!enc) return;
    const struct qrn_allocator *a = &enc->dev->host.allocator;
    qrn_encoder_reset(enc);
    qrn_free(a, enc->steps, enc->n_steps_reserved * sizeof *enc->steps);
    qrn_free(a, enc->ranges, enc->n_ranges_reserved * sizeof *enc->ranges);
    qrn_free(a, enc, sizeof *enc);
}

/* Makes room for n more elements behind *n_used. */
static bool reserve(const struct qrn_allocator *a, void **memory, size_t element, size_t n_used,
                    size_t *n_reserved, size_t n)
{
    if (*n_reserved - n_used >= n) return true;
    const size_t want = (*n_reserved + n) * 2;
    void *bigger = qrn_realloc(a, *memory, *n_reserved * element, want * element);
    if (!bigger) return false;
    *memory = bigger;
    *n_reserved = want;
    return true;
}

/* An operand's bytes; one that holds addresses reaches anywhere. */
static struct range range_of(const struct qrn_operand *o, const struct qrn_tensor *t)
{
    const bool written = (o->access & QRN_WRITES) != 0;
    size_t n = t->n_bytes;
    if (t->dtype == QRN_ADDRESS) return (struct range){0, UINTPTR_MAX, true};
    if (!(o->access & QRN_OPAQUE) && !qrn_tensor_extent(t, &n)) n = 0;
    return (struct range){(uintptr_t)t->data, (uintptr_t)t->data + n, written};
}

static bool conflicts(const struct qrn_encoder *enc, struct range r)
{
    for (size_t i = 0; i < enc->n_ranges; i++) {
        const struct range *s = &enc->ranges[i];
        if (r.begin < s->end && s->begin < r.end && (r.written || s->written)) return true;
    }
    return false;
}

/* Whether args touch what earlier steps touch (or wait anyway); then those are forgotten.  Adds what
 * args touch. */
static bool track(struct qrn_encoder *enc, const struct qrn_op *op, const void *args, bool wait)
{
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < op->n_operands; i++) {
            const struct qrn_tensor *t = qrn_operand_tensor(&op->operands[i], args);
            if (t->n_dims == 0) continue;
            const struct range r = range_of(&op->operands[i], t);
            if (pass == 0)
                wait = wait || conflicts(enc, r);
            else
                enc->ranges[enc->n_ranges++] = r;
        }
        if (pass == 0 && wait) enc->n_ranges = 0;
    }
    return wait;
}

static enum qrn_status record(struct qrn_encoder *enc, enum qrn_op_id id, const void *args,
                              struct qrn_error *err)
{
    const struct qrn_allocator *a = &enc->dev->host.allocator;
    const struct qrn_op *op = qrn_op(id);
    const struct qrn_kernel *kernel;
    QRN_TRY(qrn_op_check(op, args, err));
    QRN_TRY(qrn_kernel_choose(enc->dev, id, args, &kernel, err));
    void *steps = enc->steps, *ranges = enc->ranges;
    if (!reserve(a, &steps, sizeof *enc->steps, enc->n_steps, &enc->n_steps_reserved, 1))
        return qrn_fail_memory(err, sizeof *enc->steps, "a recorded op");
    enc->steps = steps;
    if (!reserve(a, &ranges, sizeof *enc->ranges, enc->n_ranges, &enc->n_ranges_reserved,
                 op->n_operands))
        return qrn_fail_memory(err, sizeof *enc->ranges, "a recorded op");
    enc->ranges = ranges;
    void *copy = qrn_alloc(a, op->args_bytes);
    if (!copy) return qrn_fail_memory(err, op->args_bytes, "a recorded op");
    memcpy(copy, args, op->args_bytes);
    const size_t scratch =
        kernel->scratch_bytes ? kernel->scratch_bytes(args, enc->dev->n_threads) : 0;
    if (scratch > enc->scratch_bytes) enc->scratch_bytes = scratch;
    /* Scratch is shared by all steps, so those that use it cannot run side by side. */
    const bool wait = track(enc, op, args, scratch > 0);
    enc->steps[enc->n_steps++] =
        (struct qrn_step){.op = op, .kernel = kernel, .args = copy, .wait_before = wait};
    return QRN_OK;
}

void qrn_op_record(struct qrn_encoder *enc, enum qrn_op_id op, const void *args)
{
    if (enc->failure.status == QRN_OK && record(enc, op, args, &enc->failure) != QRN_OK)
        qrn_error_prefix(&enc->failure, enc->failure.status, "op %zu of the recording",
                         enc->n_steps);
}

enum qrn_status qrn_encoder_submit_range(struct qrn_encoder *enc, size_t begin, size_t end,
                                         struct qrn_error *err)
{
    if (enc->failure.status != QRN_OK) {
        if (err) *err = enc->failure;
        return enc->failure.status;
    }
    if (begin == end) return QRN_OK;
    struct qrn_device *dev = enc->dev;
    pthread_mutex_lock(&dev->lock);
    const enum qrn_status status =
        dev->backend->execute(dev, enc->steps + begin, end - begin, enc->scratch_bytes, err);
    pthread_mutex_unlock(&dev->lock);
    return status;
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
