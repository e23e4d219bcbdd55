/* SPDX-License-Identifier: MIT
 * Joints of a product with some rows of x, whose columns are gates and ups, and silu_mul of both: of packed weights, where
 * silu_mul's launch adds up pieces of the product's tiles, and of bf16 weights, or of many rows of x, where the product's own
 * launch does it. */
#include "backends/cuda/joints.h"
#include "backends/cuda/matmul_registers.h"
#include "backends/cuda/matmul_wgmma.h"
#include "backends/cuda/matmul_whole.h"
#include "core/overlap.h"

static bool matches(const struct qrn_cuda *cuda, const struct qrn_step *steps)
{
    const struct qrn_matmul_args *product = steps[0].args;
    const struct qrn_silu_mul_args *silu = steps[1].args;
    const struct qrn_tensor *out = &product->out;
    const struct qrn_tensor *const passed[] = {out, &silu->gate, &silu->up, &silu->out};
    const int last = out->n_dims - 1;
    const int64_t d = silu->gate.shape[silu->gate.n_dims - 1];
    (void)cuda;
    if (out->shape[last] != 2 * d) return false;
    if (silu->out.dtype != QRN_F32 && silu->out.dtype != QRN_BF16) return false;
    const struct qrn_tensor gate = qrn_tensor_slice(*out, last, 0, d),
                            up = qrn_tensor_slice(*out, last, d, d);
    return qrn_same_view(&silu->gate, &gate) && qrn_same_view(&silu->up, &up) &&
           qrn_cuda_are_joined(steps, 2, passed, 4);
}

/* One launch reads x and writes the middle. */
static bool rows_match(const struct qrn_cuda *cuda, const struct qrn_step *steps)
{
    const struct qrn_matmul_args *product = steps[0].args;
    const struct qrn_silu_mul_args *silu = steps[1].args;
    return matches(cuda, steps) && !qrn_same_view(&product->x, &silu->out) &&
           !qrn_same_view(&product->w, &silu->out);
}

static bool packed_matches(const struct qrn_cuda *cuda, const struct qrn_step *steps)
{
    const struct qrn_silu_mul_args *silu = steps[1].args;
    return matches(cuda, steps) &&
           qrn_cuda_registers_end_tiles_at(steps[0].args, silu->gate.shape[silu->gate.n_dims - 1]);
}

static bool prompt_matches(const struct qrn_cuda *cuda, const struct qrn_step *steps)
{
    return rows_match(cuda, steps) && qrn_cuda_wgmma_makes_silu(cuda, steps[0].args, steps[1].args);
}

static void run(struct qrn_cuda_stream *s, const struct qrn_step *steps)
{
    qrn_cuda_whole_silu(s, steps[0].args, steps[1].args,
                        qrn_cuda_step_operand_stays(s, &steps[0], "w"));
}

static void run_packed(struct qrn_cuda_stream *s, const struct qrn_step *steps)
{
    qrn_cuda_registers_silu(s, steps[0].args,
                            &((const struct qrn_silu_mul_args *)steps[1].args)->out);
}

static void run_prompt(struct qrn_cuda_stream *s, const struct qrn_step *steps)
{
    qrn_cuda_wgmma_silu(s, steps[0].args, steps[1].args,
                        qrn_cuda_step_operand_stays(s, &steps[0], "w"));
}

const struct qrn_cuda_joint qrn_cuda_joint_product_silu = {
    .name = "product_silu",
    .kernels = {&qrn_cuda_matmul_whole, &qrn_cuda_silu_mul_rows},
    .n_steps = 2,
    .matches = rows_match,
    .run = run,
};

const struct qrn_cuda_joint qrn_cuda_joint_packed_product_silu = {
    .name = "packed_product_silu",
    .kernels = {&qrn_cuda_matmul_registers, &qrn_cuda_silu_mul_rows},
    .n_steps = 2,
    .matches = packed_matches,
    .run = run_packed,
};

const struct qrn_cuda_joint qrn_cuda_joint_prompt_product_silu = {
    .name = "prompt_product_silu",
    .kernels = {&qrn_cuda_matmul_wgmma, &qrn_cuda_silu_mul_rows},
    .n_steps = 2,
    .matches = prompt_matches,
    .run = run_prompt,
};
