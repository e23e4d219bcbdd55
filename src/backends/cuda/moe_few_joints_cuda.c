/* SPDX-License-Identifier: MIT
 * Joints of experts, a few tokens: the two products that routes are made of; gates and ups. */
#include "backends/cuda/joints.h"
#include "backends/cuda/matmul_experts.h"
#include "backends/cuda/matmul_job.h"
#include "backends/cuda/matmul_prepare.h"
#include "backends/cuda/matmul_stream.h"
#include "backends/cuda/moe_joints_cuda.h"

QRN_CUDA_IMAGE(matmul_floats);

/* Warps of two rounds of a multiprocessor's twelve: more outputs of several rows of x are better made by tiles. */
enum { ROUTER_WARPS = 24 };

static bool matches_router(const struct qrn_cuda *cuda, const struct qrn_step *steps)
{
    const int64_t most = ROUTER_WARPS * (int64_t)cuda->n_multiprocessors;
    struct qrn_matmul_params a, b;
    if (!qrn_cuda_matmul_job(steps[0].args, &a) || !qrn_cuda_matmul_job(steps[1].args, &b))
        return false;
    if (a.ids || b.ids || a.n_matrices != 1 || b.n_matrices != 1 || a.most_rows != b.most_rows)
        return false;
    if (a.most_rows < 1 || a.w.n < 1 || b.w.n < 1) return false;
    return (a.most_rows == 1 || a.most_rows <= most / (a.w.n + b.w.n)) &&
           qrn_cuda_are_joined(steps, 2, NULL, 0);
}

static void run_router(struct qrn_cuda_stream *s, const struct qrn_step *steps)
{
    enum { WARPS = 4 };
    static const struct qrn_cuda_function f = {qrn_cuda_image_matmul_floats, "qrn_moe_router", 0};
    struct qrn_moe_router_params p;
    (void)qrn_cuda_matmul_job(steps[0].args, &p.first);
    (void)qrn_cuda_matmul_job(steps[1].args, &p.second);
    qrn_cuda_cut_rows(&p.first, 1, false);
    qrn_cuda_cut_rows(&p.second, 1, false);
    const int64_t n = p.first.n_tiles * p.first.w.n + p.second.n_tiles * p.second.w.n;
    qrn_cuda_launch(
        s, &f, (struct qrn_cuda_grid){.n_blocks = (n + WARPS - 1) / WARPS, .n_threads = 32 * WARPS},
        &p);
}

const struct qrn_cuda_joint qrn_cuda_joint_moe_router = {
    .name = "moe_router",
    .kernels = {&qrn_cuda_matmul_floats, &qrn_cuda_matmul_floats},
    .n_steps = 2,
    .matches = matches_router,
    .run = run_router,
};

/* --- gates and ups --- */

static bool matches_pair(const struct qrn_cuda *cuda, const struct qrn_step *steps)
{
    struct qrn_matmul_params gate, up;
    (void)cuda;
    return qrn_cuda_matmul_id_job(steps[0].args, &gate) &&
           qrn_cuda_matmul_id_job(steps[1].args, &up) && qrn_cuda_experts_are_alike(&gate, &up) &&
           qrn_cuda_are_joined(steps, 2, NULL, 0);
}

static void run_pair(struct qrn_cuda_stream *s, const struct qrn_step *steps)
{
    struct qrn_matmul_params gate, up;
    (void)qrn_cuda_matmul_id_job(steps[0].args, &gate);
    (void)qrn_cuda_matmul_id_job(steps[1].args, &up);
    qrn_cuda_queue_stream(s, &gate, &up);
}

const struct qrn_cuda_joint qrn_cuda_joint_moe_pair = {
    .name = "moe_pair",
    .kernels = {&qrn_cuda_matmul_id_stream, &qrn_cuda_matmul_id_stream},
    .n_steps = 2,
    .matches = matches_pair,
    .run = run_pair,
};
