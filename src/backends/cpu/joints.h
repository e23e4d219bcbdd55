/* SPDX-License-Identifier: MIT
 * Joints: two steps that lanes take as one, where what the first writes is what the second reads, and nobody else.  It gives what
 * the second would have given, to the bit; what the first writes may be left out, where the second says that nobody reads
 * it again (drops_inputs). */
#ifndef QUERN_BACKENDS_CPU_JOINTS_H
#define QUERN_BACKENDS_CPU_JOINTS_H

#include "backends/cpu/cpu.h"
#include "core/device_impl.h"

/* One struct, one row in joints.inc. */
struct qrn_cpu_joint {
    const struct qrn_kernel *first,
        *second; /* as they were chosen: so all that those support is known of the arguments */
    bool (*matches)(const void *first, const void *second,
                    int n_lanes); /* whether their arguments fit together */
    /* Both, in the first one's scratch; all that was recorded before is done. */
    void (*run)(struct qrn_cpu_lane *lane, const void *first, const void *second);
};

/* What the first two steps are for n_lanes lanes; NULL: no joint. */
const struct qrn_cpu_joint *qrn_cpu_joint_of(const struct qrn_step *steps, size_t n_steps,
                                             int n_lanes);

#endif
