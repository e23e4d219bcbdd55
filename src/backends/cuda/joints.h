/* SPDX-License-Identifier: MIT
 * Joints: one launch for a run of recorded steps, where what one step writes is what the next one reads.
 *
 * A joint gives what the launches of its steps would have given, to the bit, but for a product in any order, which it may
 * sum in another one: all that their ops write is written, but for what a step says that nobody reads again (drops_inputs
 * of silu_mul and gdn_open_chunk).  It is found when steps are queued together, by the kernels that were chosen for them:
 * so all that those support is known of the arguments. */
#ifndef QUERN_BACKENDS_CUDA_JOINTS_H
#define QUERN_BACKENDS_CUDA_JOINTS_H

#include "backends/cuda/launch.h"

enum { QRN_CUDA_JOINT_STEPS = 15 };

#define QRN_KERNEL(op, variant) extern const struct qrn_kernel qrn_cuda_##op##_##variant;
#include "backends/cuda/kernels.inc"
#undef QRN_KERNEL

/* One file, one struct, one row in joints.inc. */
struct qrn_cuda_joint {
    const char *name;                                       /* for people */
    const struct qrn_kernel *kernels[QRN_CUDA_JOINT_STEPS]; /* of its steps */
    size_t n_steps;
    /* Whether these steps can be joined: their arguments fit together, and nothing else that a step
     * writes is touched by another (qrn_cuda_are_joined). */
    bool (*matches)(const struct qrn_cuda *cuda, const struct qrn_step *steps);
    void (*run)(struct qrn_cuda_stream *s, const struct qrn_step *steps);
};

/* The first of the list that the steps begin with; NULL: none. */
const struct qrn_cuda_joint *qrn_cuda_joint_of(const struct qrn_cuda *cuda,
                                               const struct qrn_step *steps, size_t n_steps);

/* For matches: a step writes nothing that others touch, nor they what it touches, but for views that are
 * both among those that the joint passes on, and answers for. */
bool qrn_cuda_is_joined(const struct qrn_step *step, const struct qrn_step *others, size_t n_others,
                        const struct qrn_tensor *const *passed, size_t n_passed);
/* The same of each step and those after it. */
bool qrn_cuda_are_joined(const struct qrn_step *steps, size_t n_steps,
                         const struct qrn_tensor *const *passed, size_t n_passed);

#endif
