/* SPDX-License-Identifier: MIT
 * Joints of one token: chains of products of packed weights. */
#include "backends/cuda/matmul_chain.h"

QRN_CUDA_IMAGE(matmul_chain_sm90a);

#define CHAIN(NAME)                                                               \
    [QRN_##NAME] = {qrn_cuda_image_matmul_chain_sm90a, "qrn_matmul_chain_" #NAME, \
                    QRN_FEW_MOST_SHARED}
static const struct qrn_cuda_function chain_of[QRN_DTYPE_COUNT] = {
    CHAIN(Q4_0), CHAIN(Q4_K), CHAIN(Q5_K), CHAIN(Q6_K), CHAIN(Q8_0),
};

enum { LEAST_STAGES = 6, WINDOW = 37 * 1024 };

static bool takes(const struct qrn_weights_params *w)
{
    return chain_of[w->dtype].name;
}

static bool chain_of_steps(const struct qrn_cuda *cuda, const struct qrn_step *steps,
                           size_t n_steps, struct qrn_matmul_chain_params *p,
                           struct qrn_cuda_grid *grid)
{
    static const struct qrn_chain_form form = {QRN_Q8_ACT, QRN_CHAIN_Q8_HEAD, 128 / 4, takes};
    if (!qrn_cuda_chain_of_steps(cuda, &form, steps, n_steps, p)) return false;
    for (int i = 0; i < p->n_links; i++) p->link[i].group_rows = QRN_PANEL_ROWS;
    const struct qrn_chain_ring ring = {.stage_bytes = QRN_STREAM_PANELS * p->link[0].w.panel_bytes,
                                        .sums_bytes =
                                            qrn_stream_stage_sums(1) * (int64_t)sizeof(float),
                                        .x_bytes = QRN_STREAM_X,
                                        .d_bytes = sizeof(float),
                                        .least_stages = LEAST_STAGES,
                                        .most_stages = QRN_CHAIN_STAGES,
                                        .window_bytes = WINDOW};
    return qrn_cuda_chain_lay_out(cuda, &ring, p, grid);
}

static bool matches(const struct qrn_cuda *cuda, const struct qrn_step *steps, size_t n_steps)
{
    struct qrn_matmul_chain_params p;
    struct qrn_cuda_grid grid;
    return chain_of_steps(cuda, steps, n_steps, &p, &grid);
}

static void run(struct qrn_cuda_stream *s, const struct qrn_step *steps, size_t n_steps)
{
    struct qrn_matmul_chain_params p;
    struct qrn_cuda_grid grid;
    if (chain_of_steps(s->cuda, steps, n_steps, &p, &grid))
        qrn_cuda_launch(s, &chain_of[p.link[0].w.dtype], grid, &p);
}

QRN_CHAIN_JOINTS(chain, &qrn_cuda_matmul_stream);
