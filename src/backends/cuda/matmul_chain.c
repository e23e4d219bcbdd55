/* SPDX-License-Identifier: MIT
 * Chains of products: which steps can be one launch, and what that is given whatever the weights are. */
#include "backends/cuda/matmul_chain.h"

#include "backends/cuda/matmul_job.h"
#include "backends/cuda/norm_cuda.h"
#include "core/overlap.h"

/* As of matmul_stream_cuda.c. */
enum { EARLY = 2, PACE = 18 };

/* --- links --- */

static uint64_t address(const struct qrn_tensor *t)
{
    return t->n_dims ? (uint64_t)(uintptr_t)t->data : 0;
}

bool qrn_cuda_chain_is_row(const struct qrn_tensor *t, int64_t n)
{
    return !t->n_dims || (t->shape[t->n_dims - 1] == n && qrn_tensor_n_elements(t) == n &&
                          qrn_is_contiguous(t) && (uintptr_t)t->data % 16 == 0);
}

bool qrn_cuda_chain_norm_row(const struct qrn_rms_norm_args *a, const struct qrn_tensor *made,
                             enum qrn_dtype x, int64_t n, struct qrn_chain_row *row)
{
    const struct qrn_tensor *const all[] = {&a->x,   &a->weight, &a->residual,
                                            &a->sum, &a->out,    &a->rounded};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!qrn_cuda_chain_is_row(all[i], n)) return false;
    *row = (struct qrn_chain_row){.residual = a->residual.n_dims != 0,
                                  .weight = address(&a->weight),
                                  .sum = address(&a->sum),
                                  .out = address(&a->out),
                                  .rounded = address(&a->rounded),
                                  .kind = QRN_CHAIN_NORM,
                                  .n = (int32_t)n,
                                  .eps = a->eps};
    return a->x.data == made->data && !a->gate.n_dims && a->rounded.dtype == x &&
           n > QRN_NORM_WARP_ROW && n <= QRN_CHAIN_NORM_PIECES * QRN_STREAM_WARPS * QRN_PIECE;
}

int64_t qrn_cuda_chain_place_in(const struct qrn_tensor *t, int64_t n,
                                const struct qrn_tensor *made)
{
    const uintptr_t at = ((uintptr_t)t->data - (uintptr_t)made->data) / sizeof(float);
    const int64_t n_made = qrn_tensor_n_elements(made);
    if (!qrn_cuda_chain_is_row(t, n) || (uintptr_t)t->data < (uintptr_t)made->data ||
        at > (uintptr_t)n_made)
        return -1;
    return (int64_t)at + n <= n_made ? (int64_t)at : -1;
}

static bool row_of_silu_mul(const struct qrn_silu_mul_args *a, const struct qrn_tensor *made,
                            enum qrn_dtype x, int64_t n, struct qrn_chain_row *row)
{
    const int64_t gate_at = qrn_cuda_chain_place_in(&a->gate, n, made),
                  up_at = qrn_cuda_chain_place_in(&a->up, n, made);
    *row = (struct qrn_chain_row){.rounded = address(&a->out),
                                  .kind = QRN_CHAIN_SILU_MUL,
                                  .n = (int32_t)n,
                                  .gate_at = (int32_t)gate_at,
                                  .up_at = (int32_t)up_at};
    return gate_at >= 0 && up_at >= 0 && qrn_cuda_chain_is_row(&a->out, n) && a->out.dtype == x;
}

/* What is between two products: the row of n elements, rounded to x, that the second one meets. */
static bool row_of(const struct qrn_step *step, const struct qrn_tensor *made, enum qrn_dtype x,
                   int64_t n, struct qrn_chain_row *row)
{
    if (n % QRN_PIECE || !qrn_cuda_chain_is_row(made, qrn_tensor_n_elements(made))) return false;
    return step->kernel == &qrn_cuda_silu_mul_rows
               ? row_of_silu_mul(step->args, made, x, n, row)
               : qrn_cuda_chain_norm_row(step->args, made, x, n, row);
}

bool qrn_cuda_chain_link_of(const struct qrn_matmul_args *a, const struct qrn_chain_form *form,
                            struct qrn_chain_link *l)
{
    struct qrn_matmul_params job;
    if (!qrn_cuda_matmul_job(a, &job)) return false;
    l->w = job.w, l->x = job.x.data, l->out = job.out.data;
    return job.most_rows == 1 && job.n_matrices == 1 && !job.ids &&
           job.x_dtype == (int32_t)form->x && job.w.n > 0 && job.w.n < 1 << 20 &&
           job.w.k < 1 << 17 && qrn_cuda_chain_is_row(&a->x, job.w.k) && form->takes(&job.w);
}

/* --- what is written, and when --- */

static const struct qrn_operand reads = {.access = QRN_READS};

/* Whether steps write what t is, all of it; *some: a part of it. */
static bool is_written(const struct qrn_tensor *t, const struct qrn_operand *o,
                       const struct qrn_step *steps, size_t n_steps, bool *some)
{
    bool all = false;
    for (size_t i = 0; i < n_steps && t->n_dims; i++)
        for (size_t k = 0; k < steps[i].op->n_operands; k++) {
            const struct qrn_operand *p = &steps[i].op->operands[k];
            const struct qrn_tensor *u = qrn_operand_tensor(p, steps[i].args);
            if (!(p->access & QRN_WRITES) || qrn_are_apart(o, t, p, u)) continue;
            if (qrn_same_view(t, u))
                all = true;
            else
                *some = true;
        }
    return all;
}

bool qrn_cuda_chain_stays(const struct qrn_tensor *t, const struct qrn_step *steps, size_t n_steps)
{
    bool some = false;
    return !is_written(t, &reads, steps, n_steps, &some) && !some;
}

/* Leaves out what later steps write again. */
static void drop(const struct qrn_tensor *t, size_t step, const struct qrn_chain_store *stores,
                 size_t n_stores)
{
    for (size_t i = 0; i < n_stores; i++)
        if (stores[i].step == step && *stores[i].at == address(t)) *stores[i].at = 0;
}

bool qrn_cuda_chain_drop_early(const struct qrn_step *steps, size_t n_steps,
                               const struct qrn_chain_store *stores, size_t n_stores)
{
    bool some = false;
    for (size_t i = 0; i < n_steps; i++)
        for (size_t k = 0; k < steps[i].op->n_operands; k++) {
            const struct qrn_operand *o = &steps[i].op->operands[k];
            const struct qrn_tensor *t = qrn_operand_tensor(o, steps[i].args);
            if ((o->access & QRN_WRITES) && is_written(t, o, steps + i + 1, n_steps - i - 1, &some))
                drop(t, i, stores, n_stores);
        }
    return !some;
}

/* Of a chain whose products are the steps of even numbers. */
static bool drop_early(const struct qrn_step *steps, size_t n_steps, struct qrn_chain_link *links)
{
    struct qrn_chain_store stores[4 * QRN_CHAIN_LINKS];
    size_t n = 0;
    for (size_t i = 0; i < n_steps; i++) {
        struct qrn_chain_link *l = &links[(i + 1) / 2];
        if (i % 2 == 0) {
            stores[n++] = (struct qrn_chain_store){i, &l->out};
            continue;
        }
        uint64_t *const of_row[] = {&l->row.sum, &l->row.out, &l->row.rounded};
        for (int k = 0; k < 3; k++) stores[n++] = (struct qrn_chain_store){i, of_row[k]};
    }
    return qrn_cuda_chain_drop_early(steps, n_steps, stores, n);
}

/* Whether no step writes what a product reads from memory: its weights, the first one's row. */
static bool products_are_safe(const struct qrn_step *steps, size_t n_steps)
{
    const struct qrn_matmul_args *first = steps[0].args;
    for (size_t i = 0; i < n_steps; i += 2) {
        const struct qrn_matmul_args *a = steps[i].args;
        if (!qrn_cuda_chain_stays(&a->w, steps, n_steps)) return false;
    }
    return qrn_cuda_chain_stays(&first->x, steps, 1);
}

/* The residual stream lies in each block's shared memory from the first norm on.  Norms may write where it was read: the
 * last one's results are stored when all blocks have read it, and no other's are. */
static bool norms_are_safe(const struct qrn_step *steps, size_t n_steps,
                           struct qrn_matmul_chain_params *p)
{
    const struct qrn_rms_norm_args *before = NULL;
    bool some = false;
    for (size_t i = 1; i < n_steps; i += 2) {
        const struct qrn_chain_row *row = &p->link[(i + 1) / 2].row;
        const struct qrn_rms_norm_args *a = steps[i].args;
        if (row->kind != QRN_CHAIN_NORM) continue;
        if (!qrn_cuda_chain_stays(&a->weight, steps, n_steps)) return false;
        if (before ? !a->residual.n_dims || !qrn_same_view(&a->residual, &before->sum)
                   : !qrn_cuda_chain_stays(&a->residual, steps, i))
            return false;
        for (size_t k = 0; k < n_steps; k += 2)
            if (!qrn_cuda_chain_stays(&a->residual, &steps[k], 1)) return false;
        (void)is_written(&a->residual, &reads, steps, n_steps, &some);
        if (!before) p->residual = address(&a->residual), p->n_residual = row->n;
        p->late_link = (int32_t)(i + 1) / 2;
        before = a;
    }
    for (int i = 0; i < p->late_link; i++)
        if (p->link[i].row.sum || p->link[i].row.out) return false;
    return before && !some;
}

/* --- words --- */

bool qrn_cuda_chain_place_words(const struct qrn_cuda *cuda, const struct qrn_chain_form *form,
                                int64_t n_more, struct qrn_matmul_chain_params *p)
{
    enum { NOTES = 256 }; /* sums are handed over, and those of gates */
    const int64_t handover = 2 * (int64_t)cuda->n_multiprocessors * QRN_PANEL_ROWS * 8;
    int64_t at = 0;
    p->notes = cuda->handover + (uint64_t)cuda->n_multiprocessors * QRN_CUDA_HANDOVER_BYTES;
    p->stream.handover = p->notes + NOTES;
    p->words = p->stream.handover + (uint64_t)handover;
    for (int i = 0; i < p->n_links; i++) {
        struct qrn_chain_link *l = &p->link[i];
        const int64_t n_pieces = l->row.kind == QRN_CHAIN_SILU_MUL ? l->row.n / QRN_PIECE : 0;
        l->pieces = (int32_t)at;
        at += (n_pieces * form->head_words + 3) / 4 * 4 + n_pieces * form->piece_words;
        l->words = (int32_t)at;
        if (i + 1 < p->n_links) at += (l->w.n + 3) / 4 * 4;
    }
    p->more_words = (int32_t)at;
    at += (n_more + 3) / 4 * 4;
    p->n_words = (int32_t)at;
    return at <= QRN_CHAIN_SET_WORDS &&
           NOTES + handover + 8 * (int64_t)QRN_CHAIN_SET_WORDS <= QRN_CUDA_EXCHANGE_BYTES;
}

bool qrn_cuda_chain_of_steps(const struct qrn_cuda *cuda, const struct qrn_chain_form *form,
                             const struct qrn_step *steps, size_t n_steps,
                             struct qrn_matmul_chain_params *p)
{
    const struct qrn_tensor *made = NULL;
    if (!cuda->owns_context) return false;
    *p = (struct qrn_matmul_chain_params){.n_links = (int32_t)(n_steps + 1) / 2};
    for (int i = 0; i < p->n_links; i++) {
        struct qrn_chain_link *l = &p->link[i];
        const struct qrn_matmul_args *a = steps[2 * i].args;
        if (!qrn_cuda_chain_link_of(a, form, l) || l->w.dtype != p->link[0].w.dtype) return false;
        if (made &&
            (!row_of(&steps[2 * i - 1], made, form->x, l->w.k, &l->row) || l->row.rounded != l->x))
            return false;
        made = &a->out;
    }
    return products_are_safe(steps, n_steps) && drop_early(steps, n_steps, p->link) &&
           norms_are_safe(steps, n_steps, p) && qrn_cuda_chain_place_words(cuda, form, 0, p);
}

/* --- the launch --- */

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Equal shares of panels, none shorter than a group.  Where groups are fewer than blocks, links take turns at who has
 * none. */
static void share(struct qrn_matmul_chain_params *p, int64_t n_blocks)
{
    int64_t at = 0;
    for (int i = 0; i < p->n_links; i++) {
        struct qrn_chain_link *l = &p->link[i];
        const int64_t n_groups = (l->w.n + l->group_rows - 1) / l->group_rows,
                      x_panels = (l->w.k + QRN_PANEL_K - 1) / QRN_PANEL_K,
                      n_panels = l->is_gated ? 2 * x_panels : x_panels,
                      n_shares = n_groups < n_blocks ? n_groups : n_blocks;
        l->x_panels = (int32_t)x_panels;
        const int64_t n_units = n_groups * n_panels / qrn_chain_share_unit(l);
        if (at + n_shares > n_blocks) at = n_blocks - n_shares;
        l->n_panels = (int32_t)n_panels;
        l->n_blocks = (int32_t)n_shares;
        l->first_block = (int32_t)at;
        l->share = (int32_t)(n_units / n_shares);
        l->n_longer = (int32_t)(n_units % n_shares);
        at = (at + n_shares) % n_blocks;
    }
}

bool qrn_cuda_chain_lay_out(const struct qrn_cuda *cuda, const struct qrn_chain_ring *ring,
                            struct qrn_matmul_chain_params *p, struct qrn_cuda_grid *grid)
{
    const int64_t n_blocks = cuda->n_multiprocessors, piece = QRN_PIECE * (int64_t)sizeof(float);
    int64_t n_panels = 0, n_normed = 0;
    share(p, n_blocks);
    for (int i = 0; i < p->n_links; i++) {
        const struct qrn_chain_link *l = &p->link[i];
        n_panels = larger(n_panels, l->x_panels);
        if (l->row.kind == QRN_CHAIN_NORM) n_normed = larger(n_normed, l->row.n / QRN_PIECE);
    }
    const int64_t n_kept = (n_normed + n_blocks - 1) / n_blocks,
                  of_x = n_panels * (ring->x_bytes + ring->d_bytes) + 16,
                  rest = ring->alignment + of_x + (n_normed + n_kept) * piece + ring->more_bytes;
    int64_t n_stages = (QRN_FEW_MOST_SHARED - rest) / (ring->stage_bytes + ring->sums_bytes),
            window = (ring->window_bytes + ring->stage_bytes / 2) / ring->stage_bytes;
    if (n_stages > ring->most_stages) n_stages = ring->most_stages;
    if (n_stages < ring->least_stages) return false;
    if (window >= n_stages) window = n_stages - 1;
    struct qrn_matmul_stream_params *s = &p->stream;
    s->job.w = p->link[0].w;
    s->job.tile_rows = 1;
    s->n_panels = p->link[0].n_panels;
    s->n_stages = (int32_t)n_stages;
    s->n_early = EARLY;
    s->pace = (int32_t)(ring->stage_bytes / PACE);
    s->stage_bytes = (int32_t)ring->stage_bytes;
    s->flip = QRN_STREAM_FLIP;
    s->sums_at = (int32_t)(n_stages * ring->stage_bytes);
    s->x_at = s->sums_at + (int32_t)(n_stages * ring->sums_bytes);
    s->d_at = s->x_at + (int32_t)(n_panels * ring->x_bytes);
    p->window = (int32_t)(window < 1 ? 1 : window);
    p->sum_at = (s->x_at + (int32_t)of_x) / 16 * 16;
    p->kept_at = p->sum_at + (int32_t)(n_normed * piece);
    p->more_at = p->kept_at + (int32_t)(n_kept * piece);
    *grid = (struct qrn_cuda_grid){
        .n_blocks = n_blocks,
        .n_threads = (unsigned)qrn_chain_threads(),
        .shared_bytes =
            (unsigned)larger(ring->alignment + p->more_at + ring->more_bytes, QRN_FEW_ALONE_SHARED),
        .meets = true};
    return true;
}
