/* SPDX-License-Identifier: MIT
 * A joint of one token: from a mixer to the next one, where the layer between has experts and a shared one. */
#include "backends/cuda/moe_chain_cuda.h"

#include "backends/cuda/matmul_chain.h"
#include "backends/cuda/matmul_job.h"
#include "core/overlap.h"

QRN_CUDA_IMAGE(matmul_chain_experts_sm90a);

/* For up to 256 experts, and for more: what chooses is short, and is code that has to come. */
#define CHAIN_OF(n, NAME)                                                             \
    {                                                                                 \
        qrn_cuda_image_matmul_chain_experts_sm90a, "qrn_chain_" #n "_experts_" #NAME, \
            QRN_FEW_MOST_SHARED                                                       \
    }
#define CHAIN(NAME) [QRN_##NAME] = {CHAIN_OF(256, NAME), CHAIN_OF(512, NAME)}
static const struct qrn_cuda_function chain_of[QRN_DTYPE_COUNT][2] = {
    CHAIN(Q4_0), CHAIN(Q4_K), CHAIN(Q5_K), CHAIN(Q6_K), CHAIN(Q8_0),
};

enum { LEAST_STAGES = 6, WINDOW = 55 * 1024, WHOLE_STAGES = QRN_STREAM_PANELS * QRN_PANEL_K };

enum step {
    OUT,
    MLP_NORM,
    ROUTER,
    SHARED_GATE,
    ROUTE,
    GATE,
    UP,
    SHARED_IN,
    SHARED_SILU,
    SILU,
    DOWN,
    SHARED_DOWN,
    COMBINE,
    MIXER_NORM,
    NEXT,
    N_STEPS
};

/* The steps' arguments. */
struct layer {
    const struct qrn_matmul_args *out, *router, *shared_gate, *shared_in, *shared_down, *next;
    const struct qrn_rms_norm_args *mlp_norm, *mixer_norm;
    const struct qrn_moe_route_args *route;
    const struct qrn_matmul_id_args *gate, *up, *down;
    const struct qrn_silu_mul_args *shared_silu, *silu;
    const struct qrn_moe_combine_args *combine;
};

static struct layer layer_of(const struct qrn_step *s)
{
    return (struct layer){.out = s[OUT].args,
                          .router = s[ROUTER].args,
                          .shared_gate = s[SHARED_GATE].args,
                          .shared_in = s[SHARED_IN].args,
                          .shared_down = s[SHARED_DOWN].args,
                          .next = s[NEXT].args,
                          .mlp_norm = s[MLP_NORM].args,
                          .mixer_norm = s[MIXER_NORM].args,
                          .route = s[ROUTE].args,
                          .gate = s[GATE].args,
                          .up = s[UP].args,
                          .down = s[DOWN].args,
                          .shared_silu = s[SHARED_SILU].args,
                          .silu = s[SILU].args,
                          .combine = s[COMBINE].args};
}

static uint64_t address(const struct qrn_tensor *t)
{
    return (uint64_t)(uintptr_t)t->data;
}

/* --- what passes from step to step --- */

struct passing {
    enum step from, to;
    const struct qrn_tensor *made, *taken;
};

/* Whether what a step takes is what one before has made, and none between has written. */
static bool passes(const struct qrn_step *steps, const struct layer *l)
{
    const struct passing all[] = {
        {OUT, MLP_NORM, &l->out->out, &l->mlp_norm->x},
        {MLP_NORM, ROUTER, &l->mlp_norm->out, &l->router->x},
        {MLP_NORM, SHARED_GATE, &l->mlp_norm->out, &l->shared_gate->x},
        {ROUTER, ROUTE, &l->router->out, &l->route->logits},
        {ROUTE, GATE, &l->route->ids, &l->gate->ids},
        {ROUTE, UP, &l->route->ids, &l->up->ids},
        {ROUTE, DOWN, &l->route->ids, &l->down->ids},
        {MLP_NORM, SHARED_IN, &l->mlp_norm->rounded, &l->shared_in->x},
        {GATE, SILU, &l->gate->out, &l->silu->gate},
        {UP, SILU, &l->up->out, &l->silu->up},
        {SHARED_SILU, SHARED_DOWN, &l->shared_silu->out, &l->shared_down->x},
        {SILU, DOWN, &l->silu->out, &l->down->x},
        {DOWN, COMBINE, &l->down->out, &l->combine->experts},
        {ROUTE, COMBINE, &l->route->weights, &l->combine->weights},
        {SHARED_DOWN, COMBINE, &l->shared_down->out, &l->combine->shared},
        {SHARED_GATE, COMBINE, &l->shared_gate->out, &l->combine->shared_gate},
        {COMBINE, MIXER_NORM, &l->combine->out, &l->mixer_norm->x},
        {MLP_NORM, MIXER_NORM, &l->mlp_norm->sum, &l->mixer_norm->residual},
        {MIXER_NORM, NEXT, &l->mixer_norm->rounded, &l->next->x},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const struct passing *p = &all[i];
        if (!p->made->n_dims || !qrn_same_view(p->made, p->taken)) return false;
        if (!qrn_cuda_chain_stays(p->made, steps + p->from + 1, p->to - p->from - 1)) return false;
    }
    return true;
}

/* The same of what is viewed as other shapes: experts' rows of x, the shared expert's gate and up. */
static bool parts_pass(const struct qrn_step *steps, const struct layer *l)
{
    const struct qrn_tensor *const x = &l->mlp_norm->rounded, *const made = &l->shared_in->out;
    return l->gate->x.data == x->data && l->up->x.data == x->data &&
           qrn_cuda_chain_stays(x, steps + MLP_NORM + 1, UP - MLP_NORM - 1) &&
           qrn_cuda_chain_is_row(made, qrn_tensor_n_elements(made));
}

/* --- weights --- */

static bool is_one_row(const struct qrn_matmul_params *p)
{
    return !p->ids && p->most_rows == 1 && p->n_matrices == 1;
}

/* Rows of plain floats that meet the norm's. */
static bool router_of(const struct layer *l, struct qrn_moe_chain_router *r)
{
    struct qrn_matmul_params job, shared;
    if (!qrn_cuda_matmul_job(l->router, &job) || !qrn_cuda_matmul_job(l->shared_gate, &shared) ||
        !is_one_row(&job) || !is_one_row(&shared))
        return false;
    const int32_t dtype = job.w.dtype;
    *r = (struct qrn_moe_chain_router){.w = job.w.w.data,
                                       .shared_w = shared.w.w.data,
                                       .logits = job.out.data,
                                       .shared_gate = shared.out.data,
                                       .ids = address(&l->route->ids),
                                       .weights = address(&l->route->weights),
                                       .row = job.w.w.stride[2],
                                       .dtype = dtype,
                                       .row_bytes = (int32_t)(job.w.k * (dtype == QRN_F32 ? 4 : 2)),
                                       .n = (int32_t)job.w.n};
    return (dtype == QRN_F32 || dtype == QRN_F16 || dtype == QRN_BF16) && shared.w.dtype == dtype &&
           shared.w.n == 1 && shared.w.k == job.w.k && job.w.n > 0 &&
           job.w.n <= QRN_MOE_CHAIN_EXPERTS && (r->w | r->shared_w | (uint64_t)r->row) % 16 == 0;
}

/* Whether weights are packed, and cut into panels alike. */
static bool are_alike(const struct qrn_weights_params *a, const struct qrn_weights_params *b)
{
    return a->packed && b->packed && a->dtype == b->dtype && a->panel_bytes == b->panel_bytes &&
           a->group == b->group;
}

/* A slot's product of one token. */
static bool slots_of(const struct qrn_matmul_id_args *a, const struct layer *l, int64_t n,
                     int64_t k, struct qrn_matmul_params *job)
{
    return qrn_cuda_matmul_id_job(a, job) && job->n_slots == job->top_k &&
           job->n_slots == l->route->ids.shape[1] && job->n_matrices == l->router->w.shape[0] &&
           job->w.n == n && job->w.k == k && job->x_dtype == QRN_Q8_ACT &&
           qrn_is_contiguous(&a->x) && qrn_is_contiguous(&a->out) &&
           (uintptr_t)a->out.data % 16 == 0;
}

/* The shared expert's product. */
static bool shared_of(const struct qrn_matmul_args *a, int64_t n, int64_t k,
                      struct qrn_matmul_params *job)
{
    return qrn_cuda_matmul_job(a, job) && is_one_row(job) && job->w.n == n && job->w.k == k &&
           job->x_dtype == QRN_Q8_ACT;
}

/* The shared expert's gates or ups: whole groups of its first product. */
static bool shared_part(const struct qrn_tensor *t, const struct layer *l,
                        const struct qrn_matmul_params *job, struct qrn_moe_chain_part *part)
{
    const int64_t at = qrn_cuda_chain_place_in(t, l->shared_down->x.shape[1], &l->shared_in->out);
    if (at < 0 || at % QRN_PANEL_ROWS) return false;
    *part = (struct qrn_moe_chain_part){job->w.packed +
                                            (uint64_t)(at / QRN_PANEL_ROWS * job->w.group_bytes),
                                        job->out.data + (uint64_t)at * sizeof(float)};
    return true;
}

/* Gates and ups as one product, what is behind them as one. */
static bool experts_of(const struct layer *l, struct qrn_moe_chain_params *p)
{
    struct qrn_chain_link *const gates = &p->chain.link[QRN_MOE_CHAIN_GATES],
                                 *const behind = &p->chain.link[QRN_MOE_CHAIN_DOWN];
    const int64_t d = l->mlp_norm->x.shape[1], top = l->route->ids.shape[1],
                  ff = l->gate->out.shape[2], ff_shared = l->shared_down->x.shape[1];
    struct qrn_matmul_params gate, up, down, shared_in, shared_down;
    if (!slots_of(l->gate, l, ff, d, &gate) || !slots_of(l->up, l, ff, d, &up) ||
        !slots_of(l->down, l, d, ff, &down) ||
        !shared_of(l->shared_in, 2 * ff_shared, d, &shared_in) ||
        !shared_of(l->shared_down, d, ff_shared, &shared_down))
        return false;
    if (gate.n_x != 1 || up.n_x != 1 || down.x_per_token != down.top_k || top > QRN_MOE_SLOTS ||
        ff % WHOLE_STAGES || ff_shared % WHOLE_STAGES)
        return false;
    const struct qrn_weights_params *const w = &p->chain.link[QRN_MOE_CHAIN_OUT].w;
    if (!are_alike(w, &gate.w) || !are_alike(w, &up.w) || !are_alike(w, &down.w) ||
        !are_alike(w, &shared_in.w) || !are_alike(w, &shared_down.w))
        return false;
    gates->w = gate.w, behind->w = down.w;
    gates->w.n = behind->w.k = top * ff + ff_shared;
    gates->is_gated = true;
    p->gate = (struct qrn_moe_chain_part){gate.w.packed, gate.out.data};
    p->up = (struct qrn_moe_chain_part){up.w.packed, up.out.data};
    p->down = (struct qrn_moe_chain_part){down.w.packed, down.out.data};
    p->shared_down = (struct qrn_moe_chain_part){shared_down.w.packed, shared_down.out.data};
    p->shared_group_bytes = shared_down.w.group_bytes;
    p->n_chosen = (int32_t)top, p->ff = (int32_t)ff, p->ff_shared = (int32_t)ff_shared;
    p->normalise = l->route->normalise;
    return gate.w.matrix_bytes == up.w.matrix_bytes && gate.w.group_bytes == up.w.group_bytes &&
           gate.w.group_bytes == shared_in.w.group_bytes &&
           shared_part(&l->shared_silu->gate, l, &shared_in, &p->shared_gate) &&
           shared_part(&l->shared_silu->up, l, &shared_in, &p->shared_up);
}

/* --- rows --- */

/* One row of silu_mul, rounded, that lies as it is taken. */
static bool is_rounded(const struct qrn_silu_mul_args *a)
{
    return a->out.dtype == QRN_Q8_ACT && qrn_is_contiguous(&a->gate) && qrn_is_contiguous(&a->up) &&
           qrn_is_contiguous(&a->out) && a->out.shape[0] == 1;
}

static bool rows_of(const struct layer *l, struct qrn_moe_chain_params *p)
{
    const int64_t d = l->mlp_norm->x.shape[l->mlp_norm->x.n_dims - 1];
    p->rounded = address(&l->silu->out), p->shared_rounded = address(&l->shared_silu->out);
    p->chain.link[QRN_MOE_CHAIN_DOWN].row = (struct qrn_chain_row){
        .kind = QRN_CHAIN_SILU_MUL, .n = (int32_t)p->chain.link[QRN_MOE_CHAIN_DOWN].w.k};
    p->chain.link[QRN_MOE_CHAIN_DOWN].out = address(&l->combine->out);
    return is_rounded(l->silu) && is_rounded(l->shared_silu) && d % QRN_PIECE == 0 &&
           d <= QRN_MOE_CHAIN_NORM_PIECES * QRN_STREAM_WARPS * QRN_PIECE &&
           qrn_cuda_chain_is_row(&l->combine->out, d) &&
           qrn_cuda_chain_norm_row(l->mlp_norm, &l->out->out, QRN_Q8_ACT, d,
                                   &p->chain.link[QRN_MOE_CHAIN_GATES].row) &&
           qrn_cuda_chain_norm_row(l->mixer_norm, &l->combine->out, QRN_Q8_ACT, d,
                                   &p->chain.link[QRN_MOE_CHAIN_NEXT].row);
}

/* --- what is written, and when --- */

static bool drop_early(const struct qrn_step *steps, const struct layer *layer,
                       struct qrn_moe_chain_params *p)
{
    struct qrn_chain_link *const l = p->chain.link;
    uint64_t shared_in = address(&layer->shared_in->out);
    struct qrn_chain_row *const first = &l[QRN_MOE_CHAIN_GATES].row, *const last =
                                                                         &l[QRN_MOE_CHAIN_NEXT].row;
    const struct qrn_chain_store stores[] = {
        {OUT, &l[QRN_MOE_CHAIN_OUT].out},
        {MLP_NORM, &first->sum},
        {MLP_NORM, &first->out},
        {MLP_NORM, &first->rounded},
        {ROUTER, &p->router.logits},
        {SHARED_GATE, &p->router.shared_gate},
        {ROUTE, &p->router.ids},
        {ROUTE, &p->router.weights},
        {GATE, &p->gate.out},
        {UP, &p->up.out},
        {SHARED_IN, &shared_in},
        {SHARED_SILU, &p->shared_rounded},
        {SILU, &p->rounded},
        {DOWN, &p->down.out},
        {SHARED_DOWN, &p->shared_down.out},
        {COMBINE, &l[QRN_MOE_CHAIN_DOWN].out},
        {MIXER_NORM, &last->sum},
        {MIXER_NORM, &last->out},
        {MIXER_NORM, &last->rounded},
        {NEXT, &l[QRN_MOE_CHAIN_NEXT].out},
    };
    if (!qrn_cuda_chain_drop_early(steps, N_STEPS, stores, sizeof stores / sizeof *stores))
        return false;
    if (!shared_in) p->shared_gate.out = p->shared_up.out = 0;
    return !first->sum && !first->out && p->down.out && p->shared_down.out;
}

/* What is read from memory is written by no step, but that the last norm may write where the stream was. */
static bool inputs_stay(const struct qrn_step *steps, const struct layer *l)
{
    const struct qrn_tensor *const weights[] = {
        &l->out->w,  &l->router->w,    &l->shared_gate->w,   &l->gate->w,
        &l->up->w,   &l->shared_in->w, &l->down->w,          &l->shared_down->w,
        &l->next->w, &l->out->x,       &l->mlp_norm->weight, &l->mixer_norm->weight};
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++)
        if (!qrn_cuda_chain_stays(weights[i], steps, weights[i] == &l->out->x ? 1 : N_STEPS))
            return false;
    for (size_t i = 0; i < N_STEPS; i++)
        if (i != MLP_NORM && i != MIXER_NORM &&
            !qrn_cuda_chain_stays(&l->mlp_norm->residual, &steps[i], 1))
            return false;
    return true;
}

/* --- the launch --- */

static bool takes(const struct qrn_weights_params *w)
{
    return chain_of[w->dtype][0].name;
}

static bool lay_out(const struct qrn_cuda *cuda, struct qrn_moe_chain_params *p,
                    struct qrn_cuda_grid *grid)
{
    const int64_t d = p->chain.link[QRN_MOE_CHAIN_GATES].w.k,
                  n_rows = (p->router.n + cuda->n_multiprocessors) / cuda->n_multiprocessors;
    const struct qrn_chain_ring ring = {
        .stage_bytes = QRN_STREAM_PANELS * p->chain.link[0].w.panel_bytes,
        .sums_bytes = qrn_stream_stage_sums(1) * (int64_t)sizeof(float),
        .x_bytes = QRN_STREAM_X,
        .d_bytes = sizeof(float),
        .least_stages = LEAST_STAGES,
        .most_stages = QRN_CHAIN_STAGES,
        .window_bytes = WINDOW,
        .more_bytes = d * (int64_t)sizeof(float) + n_rows * p->router.row_bytes};
    /* A group behind gates is one block's. */
    const struct qrn_chain_link *down = &p->chain.link[QRN_MOE_CHAIN_DOWN];
    for (int i = 0; i < p->chain.n_links; i++) p->chain.link[i].group_rows = QRN_PANEL_ROWS;
    return n_rows <= QRN_STREAM_WARPS &&
           (down->w.n + QRN_PANEL_ROWS - 1) / QRN_PANEL_ROWS <= cuda->n_multiprocessors &&
           qrn_cuda_chain_lay_out(cuda, &ring, &p->chain, grid);
}

static bool chain_of_steps(const struct qrn_cuda *cuda, const struct qrn_step *steps,
                           struct qrn_moe_chain_params *p, struct qrn_cuda_grid *grid)
{
    static const struct qrn_chain_form form = {QRN_Q8_ACT, 0, 0, takes};
    const struct layer l = layer_of(steps);
    struct qrn_matmul_chain_params *const chain = &p->chain;
    if (!cuda->owns_context) return false;
    *p = (struct qrn_moe_chain_params){
        .chain = {.n_links = QRN_MOE_CHAIN_NEXT + 1, .late_link = QRN_MOE_CHAIN_NEXT}};
    if (!qrn_cuda_chain_link_of(l.out, &form, &chain->link[QRN_MOE_CHAIN_OUT]) ||
        !qrn_cuda_chain_link_of(l.next, &form, &chain->link[QRN_MOE_CHAIN_NEXT]) ||
        !are_alike(&chain->link[QRN_MOE_CHAIN_OUT].w, &chain->link[QRN_MOE_CHAIN_NEXT].w))
        return false;
    if (!passes(steps, &l) || !parts_pass(steps, &l) || !router_of(&l, &p->router) ||
        !experts_of(&l, p) || !rows_of(&l, p))
        return false;
    chain->residual = address(&l.mlp_norm->residual);
    chain->n_residual = chain->link[QRN_MOE_CHAIN_GATES].row.n;
    return l.mlp_norm->residual.n_dims && inputs_stay(steps, &l) && drop_early(steps, &l, p) &&
           qrn_cuda_chain_place_words(cuda, &form, p->router.n + 1, chain) &&
           lay_out(cuda, p, grid);
}

static bool matches(const struct qrn_cuda *cuda, const struct qrn_step *steps)
{
    struct qrn_moe_chain_params p;
    struct qrn_cuda_grid grid;
    return chain_of_steps(cuda, steps, &p, &grid);
}

static void run(struct qrn_cuda_stream *s, const struct qrn_step *steps)
{
    struct qrn_moe_chain_params p;
    struct qrn_cuda_grid grid;
    if (!chain_of_steps(s->cuda, steps, &p, &grid)) return;
    p.router.stays = qrn_cuda_step_operand_stays(s, &steps[ROUTER], "w") &&
                     qrn_cuda_step_operand_stays(s, &steps[SHARED_GATE], "w");
    qrn_cuda_launch(s, &chain_of[p.chain.link[0].w.dtype][p.router.n > 256], grid, &p);
}

const struct qrn_cuda_joint qrn_cuda_joint_chain_experts = {
    .name = "chain_experts",
    .kernels = {&qrn_cuda_matmul_stream, &qrn_cuda_rms_norm_registers, &qrn_cuda_matmul_floats,
                &qrn_cuda_matmul_floats, &qrn_cuda_moe_route_tokens, &qrn_cuda_matmul_id_stream,
                &qrn_cuda_matmul_id_stream, &qrn_cuda_matmul_stream, &qrn_cuda_silu_mul_rows,
                &qrn_cuda_silu_mul_rows, &qrn_cuda_matmul_id_stream, &qrn_cuda_matmul_stream,
                &qrn_cuda_moe_combine_rows, &qrn_cuda_rms_norm_registers, &qrn_cuda_matmul_stream},
    .n_steps = N_STEPS,
    .matches = matches,
    .run = run,
};
