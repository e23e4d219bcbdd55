/* SPDX-License-Identifier: MIT
 * Joints of experts, one token: routes with all gates and ups; what is behind them. */
#include "backends/cuda/moe_joints_cuda.h"

#include "backends/cuda/joints.h"
#include "backends/cuda/matmul_job.h"
#include "backends/cuda/matmul_stream.h"
#include "backends/cuda/op_params.h"
#include "core/overlap.h"

QRN_CUDA_IMAGE(moe_blocks_sm90a);
QRN_CUDA_IMAGE(moe_k_sm90a);
QRN_CUDA_IMAGE(moe_mlx_sm90a);

#define MOE(file, NAME)                                                                            \
    [QRN_##                                                                                        \
        NAME] = {{qrn_cuda_image_moe_##file##_sm90a, "qrn_moe_gates_" #NAME, QRN_FEW_MOST_SHARED}, \
                 {qrn_cuda_image_moe_##file##_sm90a, "qrn_moe_down_" #NAME, QRN_FEW_MOST_SHARED}}
static const struct qrn_cuda_function moe_of[QRN_DTYPE_COUNT][2] = {
    MOE(blocks, Q4_0),  MOE(blocks, Q4_1), MOE(blocks, Q5_0), MOE(blocks, Q5_1),
    MOE(blocks, Q8_0),  MOE(k, Q2_K),      MOE(k, Q3_K),      MOE(k, Q4_K),
    MOE(k, Q5_K),       MOE(k, Q6_K),      MOE(k, IQ4_XS),    MOE(blocks, IQ4_NL),
    MOE(blocks, MXFP4), MOE(k, TQ1_0),     MOE(k, TQ2_0),     MOE(mlx, MLX_Q2),
    MOE(mlx, MLX_Q3),   MOE(mlx, MLX_Q4),  MOE(mlx, MLX_Q5),  MOE(mlx, MLX_Q6),
    MOE(mlx, MLX_Q8),
};

/* --- routes, gates and ups --- */

struct gates_of {
    const struct qrn_moe_route_args *route;
    const struct qrn_matmul_id_args *gate, *up;
    const struct qrn_matmul_args *shared; /* NULL: none */
};

static struct gates_of gates_of(const struct qrn_step *steps, bool shared)
{
    return (struct gates_of){steps[0].args, steps[1].args, steps[2].args,
                             shared ? steps[3].args : NULL};
}

/* Whether weights are packed, and cut into panels alike. */
static bool are_alike(const struct qrn_weights_params *a, const struct qrn_weights_params *b)
{
    return a->packed && b->packed && a->dtype == b->dtype && a->k == b->k &&
           a->panel_bytes == b->panel_bytes && a->group_bytes == b->group_bytes &&
           a->group == b->group && a->wide_scales == b->wide_scales &&
           a->scales_dtype == b->scales_dtype;
}

static bool is_one_row(const struct qrn_matmul_params *p)
{
    return !p->ids && p->most_rows == 1 && p->n_matrices == 1;
}

/* All products meet the same row; each is served by stream, or would not be here. */
static bool matches_gates_of(const struct qrn_cuda *cuda, const struct qrn_step *steps,
                             const struct gates_of *g, size_t n_steps)
{
    struct qrn_matmul_params gate, up, shared;
    struct qrn_matmul_stream_params p;
    struct qrn_cuda_grid grid;
    const struct qrn_tensor *const passed[] = {&g->route->ids, &g->gate->ids, &g->up->ids};
    if (!qrn_cuda_matmul_id_job(g->gate, &gate) || !qrn_cuda_matmul_id_job(g->up, &up))
        return false;
    if (g->route->logits.shape[0] != 1 || gate.n_slots != gate.top_k || gate.n_x != 1) return false;
    if (gate.n_slots > QRN_MOE_SLOTS || gate.n_slots == 0 || g->route->logits.shape[1] > 512)
        return false;
    if (!qrn_same_view(&g->route->ids, &g->gate->ids) ||
        !qrn_same_view(&g->route->ids, &g->up->ids))
        return false;
    if (!are_alike(&gate.w, &up.w) || gate.w.n != up.w.n || gate.n_matrices != up.n_matrices ||
        !qrn_same_view(&g->gate->x, &g->up->x))
        return false;
    if (g->shared) {
        if (!qrn_cuda_matmul_job(g->shared, &shared) || !is_one_row(&shared)) return false;
        if (!are_alike(&gate.w, &shared.w) || shared.w.n % gate.w.n || gate.w.n % QRN_PANEL_ROWS ||
            shared.x.data != gate.x.data || shared.x_dtype != gate.x_dtype)
            return false;
    }
    return qrn_cuda_stream_launch(cuda, &gate, 1, &p, &grid) &&
           qrn_cuda_are_joined(steps, n_steps, passed, 3);
}

static bool matches_gates(const struct qrn_cuda *cuda, const struct qrn_step *steps)
{
    const struct gates_of g = gates_of(steps, false);
    return matches_gates_of(cuda, steps, &g, 3);
}

static bool matches_shared_gates(const struct qrn_cuda *cuda, const struct qrn_step *steps)
{
    const struct gates_of g = gates_of(steps, true);
    return matches_gates_of(cuda, steps, &g, 4);
}

static struct qrn_moe_part slots_of(const struct qrn_matmul_id_args *a)
{
    return (struct qrn_moe_part){.packed = (uint64_t)(uintptr_t)a->w.data,
                                 .out = (uint64_t)(uintptr_t)a->out.data,
                                 .out_row = 4 * a->out.stride[1]};
}

static void launch_gates(struct qrn_cuda_stream *s, const struct gates_of *g)
{
    struct qrn_matmul_params gate;
    struct qrn_cuda_grid grid;
    struct qrn_moe_gates_params p = {.route = qrn_cuda_moe_route_params(g->route),
                                     .gate = slots_of(g->gate),
                                     .up = slots_of(g->up)};
    (void)qrn_cuda_matmul_id_job(g->gate, &gate);
    int64_t n_tiles = 2 * gate.n_slots;
    if (g->shared) {
        p.shared = (struct qrn_moe_part){.packed = (uint64_t)(uintptr_t)g->shared->w.data,
                                         .out = (uint64_t)(uintptr_t)g->shared->out.data,
                                         .out_row = 4 * gate.w.n};
        n_tiles += g->shared->w.shape[0] / gate.w.n;
    }
    (void)qrn_cuda_stream_launch(s->cuda, &gate, n_tiles, &p.stream, &grid);
    qrn_cuda_launch(s, &moe_of[gate.w.dtype][0], grid, &p);
}

static void run_gates(struct qrn_cuda_stream *s, const struct qrn_step *steps)
{
    const struct gates_of g = gates_of(steps, false);
    launch_gates(s, &g);
}

static void run_shared_gates(struct qrn_cuda_stream *s, const struct qrn_step *steps)
{
    const struct gates_of g = gates_of(steps, true);
    launch_gates(s, &g);
}

const struct qrn_cuda_joint qrn_cuda_joint_moe_gates = {
    .name = "moe_gates",
    .kernels = {&qrn_cuda_moe_route_tokens, &qrn_cuda_matmul_id_stream, &qrn_cuda_matmul_id_stream},
    .n_steps = 3,
    .matches = matches_gates,
    .run = run_gates,
};

const struct qrn_cuda_joint qrn_cuda_joint_moe_shared_gates = {
    .name = "moe_shared_gates",
    .kernels = {&qrn_cuda_moe_route_tokens, &qrn_cuda_matmul_id_stream, &qrn_cuda_matmul_id_stream,
                &qrn_cuda_matmul_stream},
    .n_steps = 4,
    .matches = matches_shared_gates,
    .run = run_shared_gates,
};

/* --- what is behind them --- */

struct down_of {
    const struct qrn_silu_mul_args *silu, *shared_silu; /* shared ones: NULL where there is none */
    const struct qrn_matmul_id_args *down;
    const struct qrn_matmul_args *shared_down;
    const struct qrn_moe_combine_args *combine;
};

static struct down_of down_of(const struct qrn_step *steps)
{
    return (struct down_of){.silu = steps[0].args, .down = steps[1].args, .combine = steps[2].args};
}

static struct down_of shared_down_of(const struct qrn_step *steps)
{
    return (struct down_of){.shared_silu = steps[0].args,
                            .silu = steps[1].args,
                            .down = steps[2].args,
                            .shared_down = steps[3].args,
                            .combine = steps[4].args};
}

static bool is_aligned(const struct qrn_tensor *t)
{
    return (uintptr_t)t->data % 16 == 0 && (t->n_dims < 3 || t->stride[1] * 4 % 16 == 0);
}

/* Whether gate times up of one token becomes rounded rows of whole blocks, as the product takes them. */
static bool makes(const struct qrn_silu_mul_args *a, const struct qrn_tensor *x)
{
    return qrn_same_view(&a->out, x) && x->dtype == QRN_Q8_ACT && x->shape[0] == 1 &&
           x->shape[x->n_dims - 1] % QRN_PANEL_K == 0 && is_aligned(&a->gate) && is_aligned(&a->up);
}

static int64_t panels_of(const struct qrn_weights_params *w)
{
    return (w->k + QRN_PANEL_K - 1) / QRN_PANEL_K;
}

/* Shared memory for panels, their x, their sums and scales. */
static int64_t shared_bytes(int64_t n_panels, const struct qrn_weights_params *w)
{
    return n_panels *
           (w->panel_bytes + QRN_STREAM_X + (QRN_PANEL_ROWS + 1) * (int64_t)sizeof(float));
}

static struct qrn_moe_down_part part_of(const struct qrn_silu_mul_args *silu, const void *packed,
                                        const struct qrn_weights_params *w, int64_t n_slots)
{
    const bool has_slots = silu->gate.n_dims == 3;
    const int64_t block = sizeof(struct qrn_q8_act);
    return (struct qrn_moe_down_part){.gate = (uint64_t)(uintptr_t)silu->gate.data,
                                      .up = (uint64_t)(uintptr_t)silu->up.data,
                                      .out = (uint64_t)(uintptr_t)silu->out.data,
                                      .packed = (uint64_t)(uintptr_t)packed,
                                      .gate_row = has_slots ? 4 * silu->gate.stride[1] : 0,
                                      .up_row = has_slots ? 4 * silu->up.stride[1] : 0,
                                      .out_row =
                                          has_slots ? silu->out.stride[1] / QRN_PANEL_K * block : 0,
                                      .group_bytes = w->group_bytes,
                                      .n_slots = (int32_t)n_slots,
                                      .n_panels = (int32_t)panels_of(w)};
}

/* What device code is given, and how much shared memory; false: it is no joint. */
static bool params_of(const struct down_of *d, struct qrn_moe_down_params *p, int64_t *n_bytes)
{
    struct qrn_matmul_params job, shared;
    if (!qrn_cuda_matmul_id_job(d->down, &job) || job.n_slots != job.top_k || job.n_slots == 0 ||
        job.n_slots > QRN_MOE_SLOTS || job.x_per_token != job.top_k || job.w.k == 0 ||
        !makes(d->silu, &d->down->x) || d->silu->gate.n_dims != 3)
        return false;
    int64_t n_panels = job.n_slots * panels_of(&job.w);
    *p = (struct qrn_moe_down_params){.w = job.w,
                                      .experts =
                                          part_of(d->silu, d->down->w.data, &job.w, job.n_slots),
                                      .combine = qrn_cuda_moe_combine_params(d->combine),
                                      .ids = job.ids,
                                      .n_experts = job.n_matrices,
                                      .flip = QRN_STREAM_FLIP};
    if (d->shared_down) {
        if (!qrn_cuda_matmul_job(d->shared_down, &shared) || !is_one_row(&shared) ||
            !makes(d->shared_silu, &d->shared_down->x) || d->shared_silu->gate.n_dims != 2)
            return false;
        struct qrn_weights_params like = shared.w;
        like.k = job.w.k;
        like.group_bytes = job.w.group_bytes;
        if (!are_alike(&job.w, &like) || shared.w.n != job.w.n || shared.w.k == 0) return false;
        p->shared = part_of(d->shared_silu, d->shared_down->w.data, &shared.w, 1);
        n_panels += panels_of(&shared.w);
    }
    *n_bytes = shared_bytes(n_panels, &job.w);
    return *n_bytes <= QRN_FEW_MOST_SHARED;
}

/* Whether blocks may read t all along, while others write what is passed on. */
static bool is_apart(const struct qrn_tensor *t, const struct qrn_tensor *const *passed,
                     size_t n_passed)
{
    static const struct qrn_operand written = {.access = QRN_WRITES};
    for (size_t i = 0; i < n_passed; i++)
        if (t->n_dims && !qrn_are_apart(&written, t, &written, passed[i])) return false;
    return true;
}

static bool inputs_are_apart(const struct down_of *d, const struct qrn_tensor *const *passed,
                             size_t n_passed)
{
    const struct qrn_silu_mul_args *silu[] = {d->silu, d->shared_silu};
    for (int i = 0; i < 2; i++)
        if (silu[i] && !(is_apart(&silu[i]->gate, passed, n_passed) &&
                         is_apart(&silu[i]->up, passed, n_passed)))
            return false;
    return is_apart(&d->combine->weights, passed, n_passed) &&
           is_apart(&d->combine->shared_gate, passed, n_passed);
}

static bool matches_down_of(const struct qrn_step *steps, const struct down_of *d, size_t n_steps)
{
    struct qrn_moe_down_params p;
    int64_t n_bytes;
    const struct qrn_tensor none = {0};
    const struct qrn_tensor *const passed[] = {&d->silu->out,
                                               &d->down->x,
                                               &d->down->out,
                                               &d->combine->experts,
                                               d->shared_down ? &d->shared_silu->out : &none,
                                               d->shared_down ? &d->shared_down->x : &none,
                                               d->shared_down ? &d->shared_down->out : &none,
                                               d->shared_down ? &d->combine->shared : &none};
    const bool has_shared = d->combine->shared.n_dims > 0;
    if (!params_of(d, &p, &n_bytes) || has_shared != (d->shared_down != NULL)) return false;
    if (!qrn_same_view(&d->down->out, &d->combine->experts)) return false;
    if (has_shared && !qrn_same_view(&d->shared_down->out, &d->combine->shared)) return false;
    return inputs_are_apart(d, passed, 8) && qrn_cuda_are_joined(steps, n_steps, passed, 8);
}

static bool matches_down(const struct qrn_cuda *cuda, const struct qrn_step *steps)
{
    const struct down_of d = down_of(steps);
    (void)cuda;
    return matches_down_of(steps, &d, 3);
}

static bool matches_shared_down(const struct qrn_cuda *cuda, const struct qrn_step *steps)
{
    const struct down_of d = shared_down_of(steps);
    (void)cuda;
    return matches_down_of(steps, &d, 5);
}

static void launch_down(struct qrn_cuda_stream *s, const struct down_of *d)
{
    struct qrn_moe_down_params p;
    int64_t n_bytes;
    if (!params_of(d, &p, &n_bytes)) return;
    qrn_cuda_launch(
        s, &moe_of[p.w.dtype][1],
        (struct qrn_cuda_grid){.n_blocks = (p.w.n + QRN_PANEL_ROWS - 1) / QRN_PANEL_ROWS,
                               .n_threads = QRN_MOE_DOWN_THREADS,
                               .shared_bytes = (unsigned)n_bytes},
        &p);
}

static void run_down(struct qrn_cuda_stream *s, const struct qrn_step *steps)
{
    const struct down_of d = down_of(steps);
    launch_down(s, &d);
}

static void run_shared_down(struct qrn_cuda_stream *s, const struct qrn_step *steps)
{
    const struct down_of d = shared_down_of(steps);
    launch_down(s, &d);
}

const struct qrn_cuda_joint qrn_cuda_joint_moe_down = {
    .name = "moe_down",
    .kernels = {&qrn_cuda_silu_mul_rows, &qrn_cuda_matmul_id_stream, &qrn_cuda_moe_combine_rows},
    .n_steps = 3,
    .matches = matches_down,
    .run = run_down,
};

const struct qrn_cuda_joint qrn_cuda_joint_moe_shared_down = {
    .name = "moe_shared_down",
    .kernels = {&qrn_cuda_silu_mul_rows, &qrn_cuda_silu_mul_rows, &qrn_cuda_matmul_id_stream,
                &qrn_cuda_matmul_stream, &qrn_cuda_moe_combine_rows},
    .n_steps = 5,
    .matches = matches_shared_down,
    .run = run_shared_down,
};
