/* SPDX-License-Identifier: MIT
 * Joints of one token: chains of products of bf16 weights in rows. */
#include "backends/cuda/matmul_chain_bf16_cuda.h"

#include "backends/cuda/matmul_chain.h"
#include "backends/cuda/tensor_map.h"

QRN_CUDA_IMAGE(matmul_chain_bf16_sm90a);

/* Each warp that multiplies has a stage at least.  WINDOW: bytes that a block has under way; LONG_WINDOW: where its
 * weights are LONG rings and more, so that memory's throughput counts more than what is small. */
enum { LEAST_STAGES = QRN_STREAM_WARPS, WINDOW = 24 * 1024, LONG_WINDOW = 40 * 1024, LONG = 8 };

/* A stage: each 64 k are a matrix of their own.  Two panels of 16 rows follow each other, of which the second one may be
 * another block's, or past the end and 0. */
static struct qrn_tensor_box box_of(const struct qrn_weights_params *w, int rows)
{
    return (struct qrn_tensor_box){.data = (const void *)(uintptr_t)w->w.data,
                                   .dtype = QRN_BF16,
                                   .n = QRN_FEW_BOX_K,
                                   .n_rows = w->n,
                                   .n_matrices = w->k / QRN_FEW_BOX_K,
                                   .row_bytes = w->w.stride[2],
                                   .matrix_bytes = QRN_FEW_BOX_K * 2,
                                   .box_n = QRN_FEW_BOX_K,
                                   .box_rows = rows,
                                   .box_matrices =
                                       QRN_CHAIN_BF16_STAGE / (rows * QRN_FEW_BOX_K * 2),
                                   .is_read_once = true};
}

static bool takes(const struct qrn_weights_params *w)
{
    const struct qrn_tensor_box box = box_of(w, QRN_PANEL_ROWS);
    return w->dtype == QRN_BF16 && !w->packed && w->k % QRN_FEW_BOX_K == 0 &&
           qrn_cuda_can_map(&box);
}

/* Half as many rows where groups of 32 leave blocks without one. */
static int choose_rows(const struct qrn_cuda *cuda, const struct qrn_weights_params *w)
{
    const int64_t n_groups = (w->n + QRN_PANEL_ROWS - 1) / QRN_PANEL_ROWS;
    return n_groups < cuda->n_multiprocessors ? QRN_PANEL_ROWS / 2 : QRN_PANEL_ROWS;
}

static bool is_long(const struct qrn_cuda *cuda, const struct qrn_matmul_chain_params *p)
{
    const int64_t ring = (int64_t)p->stream.n_stages * QRN_CHAIN_BF16_STAGE;
    int64_t n_bytes = 0;
    for (int i = 0; i < p->n_links; i++) n_bytes += p->link[i].w.n * p->link[i].w.k * 2;
    return n_bytes / cuda->n_multiprocessors >= LONG * ring;
}

static bool chain_of_steps(const struct qrn_cuda *cuda, const struct qrn_step *steps,
                           size_t n_steps, struct qrn_matmul_chain_params *p,
                           struct qrn_cuda_grid *grid)
{
    static const struct qrn_chain_form form = {QRN_BF16, 0, QRN_CHAIN_BF16_WORDS, takes};
    static const struct qrn_chain_ring ring = {.alignment = 1024, /* a map's swizzled boxes */
                                               .stage_bytes = QRN_CHAIN_BF16_STAGE,
                                               .sums_bytes = QRN_CHAIN_BF16_SUMS,
                                               .x_bytes = QRN_FEW_X,
                                               .least_stages = LEAST_STAGES,
                                               .most_stages = QRN_CHAIN_STAGES,
                                               .window_bytes = WINDOW};
    if (!qrn_cuda_chain_of_steps(cuda, &form, steps, n_steps, p)) return false;
    for (int i = 0; i < p->n_links; i++) p->link[i].group_rows = choose_rows(cuda, &p->link[i].w);
    if (!qrn_cuda_chain_lay_out(cuda, &ring, p, grid)) return false;
    if (is_long(cuda, p)) p->window = LONG_WINDOW / QRN_CHAIN_BF16_STAGE;
    return true;
}

static bool matches(const struct qrn_cuda *cuda, const struct qrn_step *steps, size_t n_steps)
{
    struct qrn_matmul_chain_params p;
    struct qrn_cuda_grid grid;
    return chain_of_steps(cuda, steps, n_steps, &p, &grid);
}

/* Weights in rows may have been written by any op: they are copied before the launch's turn where none of the graph
 * did. */
static bool weights_stay(const struct qrn_cuda_stream *s, const struct qrn_step *steps,
                         size_t n_steps)
{
    for (size_t i = 0; i < n_steps; i += 2)
        if (!qrn_cuda_step_operand_stays(s, &steps[i], "w")) return false;
    return true;
}

static void run(struct qrn_cuda_stream *s, const struct qrn_step *steps, size_t n_steps)
{
    static const struct qrn_cuda_function f = {qrn_cuda_image_matmul_chain_bf16_sm90a,
                                               "qrn_matmul_chain_bf16", QRN_FEW_MOST_SHARED};
    struct qrn_matmul_chain_bf16_params p = {{{{0}}}};
    struct qrn_cuda_grid grid;
    if (!chain_of_steps(s->cuda, steps, n_steps, &p.chain, &grid)) return;
    if (!weights_stay(s, steps, n_steps)) p.chain.stream.n_early = 0;
    for (int i = 0; i < p.chain.n_links; i++) {
        const struct qrn_chain_link *l = &p.chain.link[i];
        const struct qrn_tensor_box box = box_of(&l->w, l->group_rows);
        qrn_cuda_tensor_map(s, &box, &p.w[i]);
    }
    qrn_cuda_launch(s, &f, grid, &p);
}

QRN_CHAIN_JOINTS(chain_bf16, &qrn_cuda_matmul_few);
