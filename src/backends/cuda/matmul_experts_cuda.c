/* SPDX-License-Identifier: MIT
 * matmul_id of packed weights with activations rounded to bf16, on Hopper, weights decoded to registers. */
#include "backends/cuda/matmul_experts.h"
#include "backends/cuda/matmul_prepare.h"
#include "backends/cuda/matmul_wgmma_cuda.h"
#include "backends/cuda/rows.h"

#include <string.h>

QRN_CUDA_IMAGE(matmul_x_bf16);
QRN_CUDA_IMAGE(matmul_experts_blocks_sm90a);
QRN_CUDA_IMAGE(matmul_experts_k_sm90a);
QRN_CUDA_IMAGE(matmul_experts_mlx_sm90a);

enum { MOST_SHARED = 228864, ALIGNED = 1024 /* as stages are */ };

#define EXPERTS(file, NAME)                                                                    \
    [QRN_##NAME] = {qrn_cuda_image_matmul_experts_##file##_sm90a, "qrn_matmul_experts_" #NAME, \
                    MOST_SHARED}
static const struct qrn_cuda_function experts_of[QRN_DTYPE_COUNT] = {
    EXPERTS(blocks, Q4_0),   EXPERTS(blocks, Q4_1),  EXPERTS(blocks, Q5_0), EXPERTS(blocks, Q5_1),
    EXPERTS(blocks, Q8_0),   EXPERTS(blocks, MXFP4), EXPERTS(k, Q2_K),      EXPERTS(k, Q3_K),
    EXPERTS(k, Q4_K),        EXPERTS(k, Q5_K),       EXPERTS(k, Q6_K),      EXPERTS(k, IQ4_XS),
    EXPERTS(blocks, IQ4_NL), EXPERTS(k, TQ1_0),      EXPERTS(k, TQ2_0),     EXPERTS(mlx, MLX_Q2),
    EXPERTS(mlx, MLX_Q3),    EXPERTS(mlx, MLX_Q4),   EXPERTS(mlx, MLX_Q5),  EXPERTS(mlx, MLX_Q6),
    EXPERTS(mlx, MLX_Q8),
};

bool qrn_cuda_experts_take(const struct qrn_matmul_params *job)
{
    if (!job->ids || !job->w.packed || !job->any_order || !experts_of[job->w.dtype].name)
        return false;
    const int64_t out_stride = qrn_one_stride(&job->out_shape, &job->out);
    return out_stride > 0 && out_stride < INT32_MAX && job->n_slots > 0 &&
           job->n_slots < INT32_MAX && job->w.n > 0 && job->w.k < INT32_MAX / 4;
}

/* Bytes from a row of x to the next where it is read as it lies: bf16, whole panels' k, in pieces of 16 bytes; else 0. */
static int64_t stride_of_given(const struct qrn_matmul_params *job)
{
    const int64_t stride = qrn_one_stride(&job->shape, &job->x);
    const bool fits = stride % 16 == 0 && job->x.data % 16 == 0 && stride < INT32_MAX;
    return job->x_dtype == QRN_BF16 && job->w.k % QRN_PANEL_K == 0 && fits ? stride : 0;
}

/* Elements from a row to the next of those that are rounded first; past their ends are zeros. */
static int64_t stride_of_rounded(const struct qrn_matmul_params *job)
{
    return qrn_ceil_div(job->w.k, QRN_PANEL_K) * QRN_PANEL_K;
}

static size_t x_bytes(const struct qrn_matmul_params *job)
{
    if (stride_of_given(job)) return 0;
    return (size_t)((job->n_x * stride_of_rounded(job) * (int64_t)sizeof(uint16_t) + 127) / 128 *
                    128);
}

static void cut_evenly(struct qrn_matmul_params *job)
{
    qrn_cuda_cut_rows(job, QRN_EXPERTS_MOST_X, true);
    job->even_tiles = true;
}

static size_t lists_bytes(const struct qrn_matmul_params *job)
{
    return (qrn_cuda_slots_bytes(job) + 127) / 128 * 128;
}

size_t qrn_cuda_experts_scratch(struct qrn_matmul_params *job)
{
    cut_evenly(job);
    return lists_bytes(job) + x_bytes(job);
}

void qrn_cuda_list_experts(struct qrn_cuda_stream *s, struct qrn_matmul_params *job)
{
    cut_evenly(job);
    qrn_cuda_sort_slots(s, s->scratch, job);
}

void qrn_cuda_share_experts(const struct qrn_matmul_params *from, struct qrn_matmul_params *job)
{
    cut_evenly(job);
    job->first = from->first;
    job->slots = from->slots;
    job->tiles = from->tiles;
}

bool qrn_cuda_experts_are_alike(const struct qrn_matmul_params *a,
                                const struct qrn_matmul_params *b)
{
    struct qrn_matmul_params other = *b;
    other.w.packed = a->w.packed;
    other.out.data = a->out.data;
    return memcmp(a, &other, sizeof other) == 0;
}

/* Each row of x once, in its order. */
static void round_x(struct qrn_cuda_stream *s, const struct qrn_matmul_params *job, CUdeviceptr to)
{
    static const struct qrn_cuda_function f = {qrn_cuda_image_matmul_x_bf16, "qrn_matmul_x_bf16",
                                               0};
    struct qrn_matmul_wgmma_params p = {
        .job = *job, .x16 = to, .n_x16 = job->n_x, .x16_stride = stride_of_rounded(job)};
    p.job.ids = 0;
    p.job.n_matrices = p.job.w2 = p.job.r2 = p.job.r3 = p.job.m2 = 1;
    p.job.m = p.job.most_rows = job->n_x;
    qrn_cuda_launch(s, &f, qrn_grid_of_warps(p.n_x16 * qrn_ceil_div(p.x16_stride, 256)), &p);
}

static int64_t stage_bytes(const struct qrn_matmul_params *job)
{
    const int64_t panels = QRN_EXPERTS_GROUPS * job->w.panel_bytes;
    return QRN_EXPERTS_X_BYTES + qrn_ceil_div(panels, ALIGNED) * ALIGNED;
}

void qrn_cuda_queue_experts(struct qrn_cuda_stream *s, const struct qrn_matmul_params *job,
                            const struct qrn_matmul_params *second)
{
    const CUdeviceptr rounded = s->scratch + lists_bytes(job);
    const int64_t given = stride_of_given(job), of_stage = stage_bytes(job),
                  n_weight_tiles = qrn_ceil_div(job->w.n, QRN_EXPERTS_WEIGHTS);
    int64_t n_stages = (MOST_SHARED - ALIGNED) / of_stage;
    if (n_stages > QRN_EXPERTS_MOST_STAGES) n_stages = QRN_EXPERTS_MOST_STAGES;
    if (!given) round_x(s, job, rounded);
    struct qrn_matmul_experts_params p = {
        .job = *job,
        .products = {{job->w.packed, job->out.data}},
        .x = given ? job->x.data : rounded,
        .x_row_bytes =
            (int32_t)(given ? given : stride_of_rounded(job) * (int64_t)sizeof(uint16_t)),
        .out_row_bytes = (int32_t)qrn_one_stride(&job->out_shape, &job->out),
        .n_weight_tiles = (int32_t)n_weight_tiles,
        .n_all_tiles = (int32_t)(second ? 2 * n_weight_tiles : n_weight_tiles),
        .n_panels = (int32_t)qrn_ceil_div(job->w.k, QRN_PANEL_K),
        .n_stages = (int32_t)n_stages,
        .stage_bytes = (int32_t)of_stage};
    if (second) p.products[1] = (struct qrn_experts_product){second->w.packed, second->out.data};
    qrn_cuda_launch(
        s, &experts_of[job->w.dtype],
        (struct qrn_cuda_grid){.n_blocks = s->cuda->n_multiprocessors,
                               .n_threads = QRN_EXPERTS_THREADS,
                               .shared_bytes = (unsigned)(ALIGNED + n_stages * of_stage)},
        &p);
}
