/* SPDX-License-Identifier: MIT
 * Joints of a prompt's experts: gates and ups are one launch, and slots are listed once for all that has the same ids. */
#include "backends/cuda/joints.h"
#include "backends/cuda/matmul_experts.h"
#include "backends/cuda/matmul_job.h"
#include "core/overlap.h"

/* What is queued next has that step's scratch. */
static void take_scratch(struct qrn_cuda_stream *s, const struct qrn_step *step)
{
    s->scratch = s->cuda->scratch + step->scratch_at;
}

static void run_step(struct qrn_cuda_stream *s, const struct qrn_step *step)
{
    take_scratch(s, step);
    step->kernel->run(s, step->args);
}

static bool pair_matches(const struct qrn_cuda *cuda, const struct qrn_step *steps)
{
    struct qrn_matmul_params gate, up;
    (void)cuda;
    return qrn_cuda_matmul_id_job(steps[0].args, &gate) &&
           qrn_cuda_matmul_id_job(steps[1].args, &up) && qrn_cuda_experts_take(&gate) &&
           qrn_cuda_experts_are_alike(&gate, &up) &&
           qrn_cuda_is_joined(&steps[0], &steps[1], 1, NULL, 0);
}

/* Gates and ups; *gate: the first one with its lists. */
static void queue_pair(struct qrn_cuda_stream *s, const struct qrn_step *steps,
                       struct qrn_matmul_params *gate)
{
    struct qrn_matmul_params up;
    (void)qrn_cuda_matmul_id_job(steps[0].args, gate);
    (void)qrn_cuda_matmul_id_job(steps[1].args, &up);
    take_scratch(s, steps);
    qrn_cuda_list_experts(s, gate);
    qrn_cuda_queue_experts(s, gate, &up);
}

static void run_pair(struct qrn_cuda_stream *s, const struct qrn_step *steps)
{
    struct qrn_matmul_params gate;
    queue_pair(s, steps, &gate);
}

/* Whether `down`, the last of n steps, may take the lists of the first: scratch is one, and no step between writes ids. */
static bool lists_stay(const struct qrn_step *steps, size_t n)
{
    const struct qrn_matmul_id_args *gate = steps[0].args, *up = steps[1].args,
                                    *down = steps[n - 1].args;
    const struct qrn_silu_mul_args *silu = steps[n - 2].args;
    const struct qrn_tensor *const passed[] = {&gate->out, &up->out, &silu->out, &down->x};
    struct qrn_matmul_params first, last;
    return steps[0].scratch_at == steps[n - 1].scratch_at &&
           qrn_same_view(&gate->ids, &down->ids) && qrn_cuda_matmul_id_job(gate, &first) &&
           qrn_cuda_matmul_id_job(down, &last) && first.n_matrices == last.n_matrices &&
           qrn_cuda_experts_take(&last) && qrn_same_view(&silu->out, &down->x) &&
           qrn_cuda_is_joined(&steps[n - 1], steps, n - 1, passed, 4);
}

static bool matches(const struct qrn_cuda *cuda, const struct qrn_step *steps)
{
    return pair_matches(cuda, steps) && lists_stay(steps, 4);
}

/* The shared expert's steps come first, for their product needs scratch. */
static bool shared_matches(const struct qrn_cuda *cuda, const struct qrn_step *steps)
{
    return pair_matches(cuda, steps) && lists_stay(steps, 6) &&
           qrn_cuda_is_joined(&steps[2], steps, 2, NULL, 0) &&
           qrn_cuda_is_joined(&steps[3], steps, 2, NULL, 0);
}

static void queue_all(struct qrn_cuda_stream *s, const struct qrn_step *steps,
                      const struct qrn_step *silu)
{
    struct qrn_matmul_params gate, down;
    queue_pair(s, steps, &gate);
    run_step(s, silu);
    (void)qrn_cuda_matmul_id_job(silu[1].args, &down);
    take_scratch(s, &silu[1]);
    qrn_cuda_share_experts(&gate, &down);
    qrn_cuda_queue_experts(s, &down, NULL);
}

static void run(struct qrn_cuda_stream *s, const struct qrn_step *steps)
{
    queue_all(s, steps, &steps[2]);
}

static void run_shared(struct qrn_cuda_stream *s, const struct qrn_step *steps)
{
    run_step(s, &steps[2]);
    run_step(s, &steps[3]);
    queue_all(s, steps, &steps[4]);
}

const struct qrn_cuda_joint qrn_cuda_joint_experts_pair = {
    .name = "experts_pair",
    .kernels = {&qrn_cuda_matmul_id_wgmma, &qrn_cuda_matmul_id_wgmma},
    .n_steps = 2,
    .matches = pair_matches,
    .run = run_pair,
};

const struct qrn_cuda_joint qrn_cuda_joint_experts = {
    .name = "experts",
    .kernels = {&qrn_cuda_matmul_id_wgmma, &qrn_cuda_matmul_id_wgmma, &qrn_cuda_silu_mul_rows,
                &qrn_cuda_matmul_id_wgmma},
    .n_steps = 4,
    .matches = matches,
    .run = run,
};

const struct qrn_cuda_joint qrn_cuda_joint_experts_shared = {
    .name = "experts_shared",
    .kernels = {&qrn_cuda_matmul_id_wgmma, &qrn_cuda_matmul_id_wgmma, &qrn_cuda_matmul_wgmma,
                &qrn_cuda_silu_mul_rows, &qrn_cuda_silu_mul_rows, &qrn_cuda_matmul_id_wgmma},
    .n_steps = 6,
    .matches = shared_matches,
    .run = run_shared,
};
