/* SPDX-License-Identifier: MIT
 * Joint of a product that is made in parts of k, and the rms_norm behind it, whose launch adds them up. */
#include "backends/cuda/joints.h"
#include "backends/cuda/matmul_registers.h"
#include "core/overlap.h"

static bool matches(const struct qrn_cuda *cuda, const struct qrn_step *steps)
{
    const struct qrn_matmul_args *product = steps[0].args;
    const struct qrn_rms_norm_args *norm = steps[1].args;
    const struct qrn_tensor *const passed[] = {&product->out};
    return qrn_same_view(&product->out, &norm->x) &&
           qrn_cuda_rms_norm_is_wide(norm, cuda->n_multiprocessors) &&
           qrn_cuda_are_joined(steps, 2, passed, 1);
}

static bool packed_matches(const struct qrn_cuda *cuda, const struct qrn_step *steps)
{
    return matches(cuda, steps) && qrn_cuda_registers_have_parts(cuda, steps[0].args);
}

static void norm(struct qrn_cuda_stream *s, const struct qrn_step *steps,
                 struct qrn_cuda_parts parts)
{
    qrn_cuda_rms_norm_of_parts(s, steps[1].args, &parts,
                               s->overlaps && qrn_cuda_step_operand_stays(s, &steps[1], "weight"));
}

static void run(struct qrn_cuda_stream *s, const struct qrn_step *steps)
{
    norm(s, steps,
         qrn_cuda_queue_parts(s, steps[0].args, qrn_cuda_step_operand_stays(s, &steps[0], "w")));
}

static void run_packed(struct qrn_cuda_stream *s, const struct qrn_step *steps)
{
    norm(s, steps, qrn_cuda_queue_registers(s, steps[0].args));
}

const struct qrn_cuda_joint qrn_cuda_joint_product_norm = {
    .name = "product_norm",
    .kernels = {&qrn_cuda_matmul_parts, &qrn_cuda_rms_norm_registers},
    .n_steps = 2,
    .matches = matches,
    .run = run,
};

const struct qrn_cuda_joint qrn_cuda_joint_packed_product_norm = {
    .name = "packed_product_norm",
    .kernels = {&qrn_cuda_matmul_registers, &qrn_cuda_rms_norm_registers},
    .n_steps = 2,
    .matches = packed_matches,
    .run = run_packed,
};
