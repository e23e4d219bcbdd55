/* SPDX-License-Identifier: MIT
 * Finding joints. */
#include "backends/cuda/joints.h"

#include "core/overlap.h"

#define QRN_JOINT(name) extern const struct qrn_cuda_joint qrn_cuda_joint_##name;
#include "backends/cuda/joints.inc"
#undef QRN_JOINT

static const struct qrn_cuda_joint *const joints[] = {
#define QRN_JOINT(name) &qrn_cuda_joint_##name,
#include "backends/cuda/joints.inc"
#undef QRN_JOINT
};

static bool begins_with(const struct qrn_cuda_joint *joint, const struct qrn_step *steps,
                        size_t n_steps)
{
    if (n_steps < joint->n_steps) return false;
    for (size_t i = 0; i < joint->n_steps; i++)
        if (steps[i].kernel != joint->kernels[i]) return false;
    return true;
}

const struct qrn_cuda_joint *qrn_cuda_joint_of(const struct qrn_cuda *cuda,
                                               const struct qrn_step *steps, size_t n_steps)
{
    for (size_t i = 0; cuda->joins && i < sizeof joints / sizeof *joints; i++)
        if (begins_with(joints[i], steps, n_steps) && joints[i]->matches(cuda, steps))
            return joints[i];
    return NULL;
}

static bool is_passed(const struct qrn_tensor *t, const struct qrn_tensor *const *passed,
                      size_t n_passed)
{
    for (size_t i = 0; i < n_passed; i++)
        if (qrn_same_view(t, passed[i])) return true;
    return false;
}

static bool step_apart(const struct qrn_step *a, const struct qrn_step *b,
                       const struct qrn_tensor *const *passed, size_t n_passed)
{
    for (size_t i = 0; i < a->op->n_operands; i++)
        for (size_t k = 0; k < b->op->n_operands; k++) {
            const struct qrn_operand *o = &a->op->operands[i], *p = &b->op->operands[k];
            const struct qrn_tensor *t = qrn_operand_tensor(o, a->args),
                                    *u = qrn_operand_tensor(p, b->args);
            if (!((o->access | p->access) & QRN_WRITES) || qrn_are_apart(o, t, p, u)) continue;
            if (!is_passed(t, passed, n_passed) || !is_passed(u, passed, n_passed)) return false;
        }
    return true;
}

bool qrn_cuda_is_joined(const struct qrn_step *step, const struct qrn_step *others, size_t n_others,
                        const struct qrn_tensor *const *passed, size_t n_passed)
{
    for (size_t i = 0; i < n_others; i++)
        if (!step_apart(step, &others[i], passed, n_passed)) return false;
    return true;
}

bool qrn_cuda_are_joined(const struct qrn_step *steps, size_t n_steps,
                         const struct qrn_tensor *const *passed, size_t n_passed)
{
    for (size_t i = 0; i < n_steps; i++)
        if (!qrn_cuda_is_joined(&steps[i], steps + i + 1, n_steps - i - 1, passed, n_passed))
            return false;
    return true;
}
