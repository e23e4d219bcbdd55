/* SPDX-License-Identifier: MIT
 * Where each step of a recording runs and what it waits for. */
#ifndef QUERN_CORE_PLAN_H
#define QUERN_CORE_PLAN_H

#include "core/device_impl.h"

enum { QRN_PLAN_LANES = 64 }; /* small steps go to the first of these */

/* Memory that a step touches. */
struct qrn_touch {
    uintptr_t begin, end; /* half open; everything: 0, UINTPTR_MAX */
    bool written;
    int lane; /* of the step, or QRN_ALL_LANES */
    size_t step;
};

/* What is known of the steps so far.  Zeros: nothing. */
struct qrn_plan {
    struct qrn_touch *touches; /* by steps that may not be done when the next begins */
    size_t n_touches, n_touches_reserved;
    struct qrn_touch *written; /* by any step, but not through addresses */
    size_t n_written, n_written_reserved;
    size_t n_steps;
    size_t floor; /* every lane has waited until the steps before this one are done */
    double load[QRN_PLAN_LANES]; /* nanoseconds of small steps since the last step of all lanes */
    size_t scratch_at;           /* free from here */
    size_t scratch_bytes;        /* for all steps */
};

void qrn_plan_reset(struct qrn_plan *plan); /* keeps its memory */
void qrn_plan_free(struct qrn_plan *plan, const struct qrn_allocator *a);

/* Adds a step whose op, kernel and args are given; fills in the rest.  False: no memory. */
bool qrn_plan_add(struct qrn_plan *plan, const struct qrn_device *dev, struct qrn_step *step);

#endif
