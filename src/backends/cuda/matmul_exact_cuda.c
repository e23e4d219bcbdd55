/* SPDX-License-Identifier: MIT
 * matmul and matmul_id of many rows of x on Hopper's tensor cores, each row with the bits it has alone: bf16 weights in rows
 * with activations rounded to bf16, packed weights with activations rounded to 8 bits. */
#include "backends/cuda/matmul_exact_x.h"
#include "backends/cuda/matmul_maps.h"
#include "backends/cuda/matmul_prepare.h"

QRN_CUDA_IMAGE(matmul_exact_bf16_sm90a);
QRN_CUDA_IMAGE(matmul_exact_blocks_sm90a);
QRN_CUDA_IMAGE(matmul_exact_k_sm90a);
QRN_CUDA_IMAGE(matmul_exact_mlx_sm90a);

/* Where any order is allowed bf16 weights are matmul_wgmma_cuda.c's.  Fewer rows of x than LEAST are others' work, but where
 * packed weights have so many rows (LEAST_WEIGHTS) that half of a large device's multiprocessors have a tile: then fewer than
 * LEAST_PACKED.  BAND: tiles of x. */
enum { LEAST = 65, LEAST_PACKED = 33, LEAST_WEIGHTS = 8192, BAND = 8, ALIGNED = 1024 };

/* Functions of one and of two blocks of 64 rows of weights for a team. */
#define EXACT(file, NAME)                                                                   \
    [QRN_##NAME] = {{qrn_cuda_image_matmul_exact_##file##_sm90a, "qrn_matmul_exact_" #NAME, \
                     QRN_EXACT_MOST_SHARED}}
static const struct qrn_cuda_function exact_of[QRN_DTYPE_COUNT][2] = {
    [QRN_BF16] = {{qrn_cuda_image_matmul_exact_bf16_sm90a, "qrn_matmul_exact1_BF16",
                   QRN_EXACT_MOST_SHARED},
                  {qrn_cuda_image_matmul_exact_bf16_sm90a, "qrn_matmul_exact2_BF16",
                   QRN_EXACT_MOST_SHARED}},
    EXACT(blocks, Q4_0),
    EXACT(blocks, Q4_1),
    EXACT(blocks, Q5_0),
    EXACT(blocks, Q5_1),
    EXACT(blocks, Q8_0),
    EXACT(blocks, IQ4_NL),
    EXACT(blocks, MXFP4),
    EXACT(k, Q2_K),
    EXACT(k, Q3_K),
    EXACT(k, Q4_K),
    EXACT(k, Q5_K),
    EXACT(k, Q6_K),
    EXACT(k, IQ4_XS),
    EXACT(k, TQ1_0),
    EXACT(k, TQ2_0),
    EXACT(mlx, MLX_Q2),
    EXACT(mlx, MLX_Q3),
    EXACT(mlx, MLX_Q4),
    EXACT(mlx, MLX_Q5),
    EXACT(mlx, MLX_Q6),
    EXACT(mlx, MLX_Q8),
};

static int64_t tiles_of(const struct qrn_matmul_params *p, int n_blocks)
{
    return p->n_tiles * qrn_ceil_div(p->w.n, qrn_exact_weights(n_blocks));
}

/* Tiles are counted in 32 bits. */
static bool is_huge(const struct qrn_matmul_params *p)
{
    const int64_t n_tiles = qrn_cuda_rows_of_x(p) / QRN_EXACT_X + 2 * p->n_matrices + 16;
    return qrn_cuda_rows_of_x(p) > INT32_MAX || p->w.k > INT32_MAX / 2 ||
           n_tiles > INT32_MAX / 16 / (qrn_ceil_div(p->w.n, qrn_exact_weights(1)) + 1);
}

static bool takes(const struct qrn_matmul_params *p, bool ok)
{
    const int64_t n_rows = p->ids ? p->n_slots : p->most_rows;
    if (!ok || p->w.k <= 0 || is_huge(p) || !exact_of[p->w.dtype][0].name) return false;
    if ((!p->ids && p->n_matrices != 1) || qrn_one_stride(&p->out_shape, &p->out) == 0)
        return false;
    if (p->w.packed)
        return p->acts == QRN_ACTS_Q8 &&
               n_rows >= (!p->ids && p->w.n >= LEAST_WEIGHTS ? LEAST_PACKED : LEAST);
    return p->acts == QRN_ACTS_BF16 && !p->any_order && n_rows >= LEAST && qrn_cuda_can_map_w(p);
}

static size_t x_bytes(const struct qrn_matmul_params *p)
{
    const size_t n = p->w.packed ? qrn_cuda_exact_x_bytes(p) : qrn_cuda_x16_bytes(p);
    return (n + 127) / 128 * 128;
}

static size_t scratch(struct qrn_matmul_params *p)
{
    qrn_cuda_cut_rows(p, QRN_EXACT_X, true);
    return x_bytes(p) + qrn_cuda_slots_bytes(p);
}

/* Blocks of 64 rows of weights of a team: two, where that does not leave multiprocessors without a tile at the end.  Half a
 * tile takes a little more than half the time. */
static int choose_blocks(const struct qrn_matmul_params *p, int n_multiprocessors)
{
    enum { WHOLE = 100, HALF = 54 };
    if (p->w.packed) return 1;
    const int64_t of_two = qrn_ceil_div(tiles_of(p, 2), n_multiprocessors) * WHOLE,
                  of_one = qrn_ceil_div(tiles_of(p, 1), n_multiprocessors) * HALF;
    return of_two <= of_one ? 2 : 1;
}

/* The ring of stages; what it takes. */
static int64_t cut_shared(struct qrn_matmul_exact_params *p, int n_blocks)
{
    if (!p->job.w.packed)
        return ALIGNED + qrn_exact_stages(n_blocks) * qrn_exact_stage_bytes(n_blocks);
    const int64_t n_bytes = QRN_EXACT_CODES_BYTES + QRN_EXACT_SUMS_BYTES + QRN_EXACT_SCALES_BYTES +
                            qrn_exact_weights(1) / QRN_PANEL_ROWS * p->job.w.panel_bytes,
                  stage = qrn_ceil_div(n_bytes, ALIGNED) * ALIGNED;
    int64_t n = (QRN_EXACT_MOST_SHARED - ALIGNED) / stage;
    if (n > QRN_EXACT_MOST_STAGES) n = QRN_EXACT_MOST_STAGES;
    p->stage_bytes = (int32_t)stage;
    p->n_stages = (int32_t)n;
    return ALIGNED + n * stage;
}

static void run(struct qrn_cuda_stream *s, struct qrn_matmul_params *job)
{
    const int n_multiprocessors = s->cuda->n_multiprocessors;
    if (qrn_cuda_rows_of_x(job) == 0 || job->w.n == 0) return;
    qrn_cuda_cut_rows(job, QRN_EXACT_X, true);
    const int n_blocks = choose_blocks(job, n_multiprocessors);
    qrn_cuda_sort_slots(s, s->scratch + x_bytes(job), job);
    struct qrn_matmul_exact_params p = {
        .job = *job,
        .out_stride = qrn_one_stride(&job->out_shape, &job->out),
        .n_work = (int32_t)tiles_of(job, n_blocks),
        .n_weight_tiles = (int32_t)qrn_ceil_div(job->w.n, qrn_exact_weights(n_blocks)),
        .band = job->ids ? 1 : BAND,
        .n_panels = (int32_t)qrn_ceil_div(job->w.k, QRN_PANEL_K)};
    const int64_t shared = cut_shared(&p, n_blocks);
    if (job->w.packed) {
        qrn_cuda_exact_x(s, s->scratch, &p);
    } else {
        const struct qrn_tensor_box w =
            qrn_cuda_box_of_w(job, QRN_EXACT_BOX_K, qrn_exact_weights(n_blocks));
        qrn_cuda_tensor_map(s, &w, &p.w);
        qrn_cuda_map_x16(s, job, s->scratch, QRN_EXACT_X, &p.x);
    }
    qrn_cuda_launch(s, &exact_of[job->w.dtype][n_blocks - 1],
                    (struct qrn_cuda_grid){
                        .n_blocks = p.n_work < n_multiprocessors ? p.n_work : n_multiprocessors,
                        .n_threads = QRN_EXACT_THREADS,
                        .shared_bytes = (unsigned)shared},
                    &p);
}

static const char serves[] = "many rows of x: bf16 weights in rows, bf16 activations; packed "
                             "weights, 8-bit activations";

QRN_CUDA_MATMUL_KERNEL_NEEDING(matmul, exact, QRN_CUDA_SM90, takes, scratch, run, serves);
QRN_CUDA_MATMUL_KERNEL_NEEDING(matmul_id, exact, QRN_CUDA_SM90, takes, scratch, run, serves);
