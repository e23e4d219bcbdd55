/* SPDX-License-Identifier: MIT */
#include "backends/cpu/joints.h"

#if defined(QRN_ISA_x86_64)
#define QRN_JOINTS_X86(name) QRN_JOINT(name)
#else
#define QRN_JOINTS_X86(name)
#endif

#define QRN_JOINT(name) extern const struct qrn_cpu_joint qrn_cpu_joint_##name;
#include "backends/cpu/joints.inc"
#undef QRN_JOINT

static const struct qrn_cpu_joint *const joints[] = {
#define QRN_JOINT(name) &qrn_cpu_joint_##name,
#include "backends/cpu/joints.inc"
#undef QRN_JOINT
    NULL,
};

const struct qrn_cpu_joint *qrn_cpu_joint_of(const struct qrn_step *steps, size_t n_steps,
                                             int n_lanes)
{
    if (n_steps < 2 || steps[0].back != 1 || steps[0].lane != QRN_ALL_LANES ||
        steps[1].lane != QRN_ALL_LANES)
        return NULL;
    for (const struct qrn_cpu_joint *const *j = joints; *j; j++)
        if ((*j)->first == steps[0].kernel && (*j)->second == steps[1].kernel &&
            (*j)->matches(steps[0].args, steps[1].args, n_lanes))
            return *j;
    return NULL;
}
