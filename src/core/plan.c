/* SPDX-License-Identifier: MIT
 * Small steps run on one lane, and what is on one lane needs no waiting; others are shared by all.
 * A step waits for the last one that touches what it touches on another lane. */
#include "core/plan.h"

#include "base/memory.h"

/* Steps below this many nanoseconds are not worth sharing: meeting costs some hundred. */
static const double SMALL_NS = 1500.0;
/* Rough speeds of one core on small data, per nanosecond. */
static const double BYTES_PER_NS = 16.0, FLOPS_PER_NS = 8.0;
/* Steps side by side keep their scratch apart, up to this much. */
static const size_t SCRATCH_APART = (size_t)32 << 20;

void qrn_plan_reset(struct qrn_plan *plan)
{
    *plan = (struct qrn_plan){
        .touches = plan->touches,
        .n_touches_reserved = plan->n_touches_reserved,
        .written = plan->written,
        .n_written_reserved = plan->n_written_reserved,
    };
}

void qrn_plan_free(struct qrn_plan *plan, const struct qrn_allocator *a)
{
    qrn_free(a, plan->touches, plan->n_touches_reserved * sizeof *plan->touches);
    qrn_free(a, plan->written, plan->n_written_reserved * sizeof *plan->written);
    *plan = (struct qrn_plan){0};
}

/* Makes room for n more behind *n_used. */
static bool reserve(const struct qrn_allocator *a, struct qrn_touch **list, size_t n_used,
                    size_t *n_reserved, size_t n)
{
    if (*n_reserved - n_used >= n) return true;
    const size_t want = (*n_reserved + n) * 2;
    struct qrn_touch *bigger =
        qrn_realloc(a, *list, *n_reserved * sizeof **list, want * sizeof **list);
    if (!bigger) return false;
    *list = bigger;
    *n_reserved = want;
    return true;
}

/* The operand's own bytes. */
static struct qrn_touch bytes_of(const struct qrn_operand *o, const struct qrn_tensor *t)
{
    size_t n = t->n_bytes;
    if (!(o->access & QRN_OPAQUE) && !qrn_tensor_extent(t, &n)) n = 0;
    return (struct qrn_touch){.begin = (uintptr_t)t->data,
                              .end = (uintptr_t)t->data + n,
                              .written = (o->access & QRN_WRITES) != 0};
}

/* What the operand leads to: one that holds addresses reaches anywhere. */
static struct qrn_touch touch_of(const struct qrn_operand *o, const struct qrn_tensor *t)
{
    if (t->dtype == QRN_ADDRESS) return (struct qrn_touch){0, UINTPTR_MAX, true, 0, 0};
    return bytes_of(o, t);
}

static bool conflict(const struct qrn_touch *a, const struct qrn_touch *b)
{
    return a->begin < b->end && b->begin < a->end && (a->written || b->written);
}

/* Whether check_data may look at something that a step before this one writes. */
static bool checks_what_steps_write(const struct qrn_plan *plan, const struct qrn_step *step)
{
    const struct qrn_op *op = step->op;
    if (!op->check_data) return false;
    for (size_t i = 0; i < op->n_operands; i++) {
        const struct qrn_tensor *t = qrn_operand_tensor(&op->operands[i], step->args);
        const bool number = t->dtype == QRN_I32 || t->dtype == QRN_I64 || t->dtype == QRN_ADDRESS;
        if (t->n_dims == 0 || !(number || op->checks_floats)) continue;
        const struct qrn_touch own = bytes_of(&op->operands[i], t);
        for (size_t k = 0; k < plan->n_written; k++)
            if (conflict(&plan->written[k], &own)) return true;
    }
    return false;
}

/* Operands as they were before the recording: step->stays. */
static uint32_t operands_that_stay(const struct qrn_plan *plan, const struct qrn_step *step)
{
    uint32_t stays = 0;
    for (size_t i = 0; i < step->op->n_operands && i < 32; i++) {
        const struct qrn_tensor *t = qrn_operand_tensor(&step->op->operands[i], step->args);
        if (t->n_dims == 0) continue;
        const struct qrn_touch own = bytes_of(&step->op->operands[i], t);
        size_t k = 0;
        while (k < plan->n_written && !conflict(&plan->written[k], &own)) k++;
        if (k == plan->n_written) stays |= 1u << i;
    }
    return stays;
}

/* Small steps go where the last small step was that they depend on, else where least is to do. */
static int choose_lane(const struct qrn_plan *plan, const struct qrn_device *dev,
                       const struct qrn_step *step, double *ns)
{
    double flops, bytes;
    const int n = dev->n_threads < QRN_PLAN_LANES ? dev->n_threads : QRN_PLAN_LANES;
    if (!step->op->cost || step->op->cost_changes || step->check_late) return QRN_ALL_LANES;
    step->op->cost(step->args, &flops, &bytes);
    *ns = flops / FLOPS_PER_NS > bytes / BYTES_PER_NS ? flops / FLOPS_PER_NS : bytes / BYTES_PER_NS;
    if (!(*ns < SMALL_NS)) return QRN_ALL_LANES;
    int best = 0;
    for (int i = 1; i < n; i++)
        if (plan->load[i] < plan->load[best]) best = i;
    size_t last = 0;
    for (size_t i = 0; i < step->op->n_operands; i++) {
        const struct qrn_tensor *t = qrn_operand_tensor(&step->op->operands[i], step->args);
        const struct qrn_touch own = touch_of(&step->op->operands[i], t);
        for (size_t k = 0; t->n_dims && k < plan->n_touches; k++) {
            const struct qrn_touch *old = &plan->touches[k];
            if (old->lane == QRN_ALL_LANES || old->step < last || !conflict(old, &own)) continue;
            last = old->step;
            best = old->lane;
        }
    }
    return best;
}

/* The first step that need not be done when this one begins. */
static size_t waits_for(const struct qrn_plan *plan, const struct qrn_step *step)
{
    size_t before = plan->floor;
    for (size_t i = 0; i < step->op->n_operands; i++) {
        const struct qrn_tensor *t = qrn_operand_tensor(&step->op->operands[i], step->args);
        const struct qrn_touch own = touch_of(&step->op->operands[i], t);
        for (size_t k = 0; t->n_dims && k < plan->n_touches; k++) {
            const struct qrn_touch *old = &plan->touches[k];
            const bool same_lane = step->lane != QRN_ALL_LANES && old->lane == step->lane;
            if (!same_lane && old->step >= before && conflict(old, &own)) before = old->step + 1;
        }
    }
    return before;
}

static size_t scratch_of(const struct qrn_device *dev, const struct qrn_step *step)
{
    const int n_lanes = step->lane == QRN_ALL_LANES ? dev->n_threads : 1;
    return step->kernel->scratch_bytes ? step->kernel->scratch_bytes(step->args, n_lanes) : 0;
}

/* A place in scratch that no step in flight uses.  Without one all lanes wait for all steps. */
static void place_scratch(struct qrn_plan *plan, const struct qrn_device *dev,
                          struct qrn_step *step, size_t *before)
{
    size_t n = scratch_of(dev, step);
    if (n == 0) return;
    if (plan->scratch_at && plan->scratch_at + n > SCRATCH_APART) {
        *before = plan->n_steps;
        step->lane = QRN_ALL_LANES;
        n = scratch_of(dev, step);
    }
    if (*before == plan->n_steps && step->lane == QRN_ALL_LANES) plan->scratch_at = 0;
    step->scratch_at = plan->scratch_at;
    plan->scratch_at += (n + QRN_ALIGNMENT - 1) / QRN_ALIGNMENT * QRN_ALIGNMENT;
    if (plan->scratch_at > plan->scratch_bytes) plan->scratch_bytes = plan->scratch_at;
}

/* What the steps before the floor touch needs no more waiting. */
static void raise_floor(struct qrn_plan *plan, size_t floor)
{
    size_t n = 0;
    if (floor == plan->floor) return;
    plan->floor = floor;
    for (size_t i = 0; i < plan->n_touches; i++)
        if (plan->touches[i].step >= floor) plan->touches[n++] = plan->touches[i];
    plan->n_touches = n;
}

static void add_written(struct qrn_plan *plan, struct qrn_touch own)
{
    for (size_t i = 0; i < plan->n_written; i++)
        if (plan->written[i].begin <= own.begin && own.end <= plan->written[i].end) return;
    plan->written[plan->n_written++] = own;
}

bool qrn_plan_add(struct qrn_plan *plan, const struct qrn_device *dev, struct qrn_step *step)
{
    const struct qrn_op *op = step->op;
    const struct qrn_allocator *a = &dev->host.allocator;
    double ns = 0.0;
    if (!reserve(a, &plan->touches, plan->n_touches, &plan->n_touches_reserved, op->n_operands) ||
        !reserve(a, &plan->written, plan->n_written, &plan->n_written_reserved, op->n_operands))
        return false;
    step->check_late = checks_what_steps_write(plan, step);
    step->stays = operands_that_stay(plan, step);
    step->lane = choose_lane(plan, dev, step, &ns);
    size_t before = waits_for(plan, step);
    place_scratch(plan, dev, step, &before);
    step->back = before ? plan->n_steps - before + 1 : 0;
    if (step->lane == QRN_ALL_LANES) {
        raise_floor(plan, before);
        for (int i = 0; i < QRN_PLAN_LANES; i++) plan->load[i] = 0.0;
    } else {
        plan->load[step->lane] += ns;
    }
    for (size_t i = 0; i < op->n_operands; i++) {
        const struct qrn_tensor *t = qrn_operand_tensor(&op->operands[i], step->args);
        if (t->n_dims == 0) continue;
        struct qrn_touch *touch = &plan->touches[plan->n_touches++];
        *touch = touch_of(&op->operands[i], t);
        touch->lane = step->lane;
        touch->step = plan->n_steps;
        if (op->operands[i].access & QRN_WRITES) add_written(plan, bytes_of(&op->operands[i], t));
    }
    plan->n_steps++;
    return true;
}
