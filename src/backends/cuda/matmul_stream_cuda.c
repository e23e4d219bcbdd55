/* SPDX-License-Identifier: MIT
 * matmul and matmul_id of packed weights with few rows of rounded activations, on Hopper. */
#include "backends/cuda/matmul_prepare.h"
#include "backends/cuda/matmul_stream.h"

QRN_CUDA_IMAGE(matmul_stream_blocks_sm90a);
QRN_CUDA_IMAGE(matmul_stream_k_sm90a);
QRN_CUDA_IMAGE(matmul_stream_mlx_sm90a);

/* Rows of x and slots that are served: others read a matrix once for more rows.  A ring of LEAST_STAGES is as good as
 * any where nothing is copied early; with two to four rows of x it has up to FEW_STAGES, with more MANY_STAGES, what lies
 * beyond being of more use to small launches that run meanwhile. */
enum { MOST_ROWS = 64, MOST_SLOTS = 64, LEAST_STAGES = 6, FEW_STAGES = 12, MANY_STAGES = 8 };

/* Before its turn a launch copies EARLY stages at once, others at PACE bytes a clock, what memory gives each
 * multiprocessor, and asks for ASKED more. */
enum { EARLY = 2, PACE = 18, ASKED = 12 };

/* Functions of a type: for one row of x, a few, and more. */
#define STREAM(file, NAME)                                                                     \
    [QRN_##NAME] = {{qrn_cuda_image_matmul_stream_##file##_sm90a, "qrn_matmul_stream1_" #NAME, \
                     QRN_FEW_MOST_SHARED},                                                     \
                    {qrn_cuda_image_matmul_stream_##file##_sm90a, "qrn_matmul_stream4_" #NAME, \
                     QRN_FEW_MOST_SHARED},                                                     \
                    {qrn_cuda_image_matmul_stream_##file##_sm90a, "qrn_matmul_stream8_" #NAME, \
                     QRN_FEW_MOST_SHARED}}
static const struct qrn_cuda_function stream_of[QRN_DTYPE_COUNT][3] = {
    STREAM(blocks, Q4_0), STREAM(blocks, Q4_1),   STREAM(blocks, Q5_0),  STREAM(blocks, Q5_1),
    STREAM(blocks, Q8_0), STREAM(blocks, IQ4_NL), STREAM(blocks, MXFP4), STREAM(k, Q2_K),
    STREAM(k, Q3_K),      STREAM(k, Q4_K),        STREAM(k, Q5_K),       STREAM(k, Q6_K),
    STREAM(k, IQ4_XS),    STREAM(k, TQ1_0),       STREAM(k, TQ2_0),      STREAM(mlx, MLX_Q2),
    STREAM(mlx, MLX_Q3),  STREAM(mlx, MLX_Q4),    STREAM(mlx, MLX_Q5),   STREAM(mlx, MLX_Q6),
    STREAM(mlx, MLX_Q8),
};

/* Which of a type's functions serves so many rows of x at once. */
static int form_of(int tile_rows)
{
    return (tile_rows > 1) + (tile_rows > QRN_STREAM_FEW);
}

_Static_assert(sizeof(struct qrn_stream_handover) == QRN_CUDA_HANDOVER_BYTES, "");

/* How a product is cut: rows of x at once, the ring's stages. */
struct cut {
    int tile_rows, n_stages;
    int64_t shared_bytes;
};

static int64_t panels_of(const struct qrn_matmul_params *p)
{
    return (p->w.k + QRN_PANEL_K - 1) / QRN_PANEL_K;
}

static int64_t groups_of(const struct qrn_matmul_params *p)
{
    return (p->w.n + QRN_PANEL_ROWS - 1) / QRN_PANEL_ROWS;
}

/* Stages of the ring, at most `most`, each with its sums, beside rows of x. */
static bool fits(const struct qrn_matmul_params *p, int tile_rows, int64_t shared, int64_t most,
                 struct cut *out)
{
    const int64_t of_x = tile_rows > 1 ? tile_rows * qrn_stream_x_pitch((int)panels_of(p))
                                       : panels_of(p) * (QRN_STREAM_X + (int64_t)sizeof(float)),
                  of_sums = (int64_t)qrn_stream_stage_sums(tile_rows) * (int64_t)sizeof(float),
                  stage = QRN_STREAM_PANELS * p->w.panel_bytes;
    int64_t n = (shared - of_x) / (stage + of_sums);
    if (n > most) n = most;
    *out = (struct cut){tile_rows, (int)n, of_x + n * (stage + of_sums)};
    return n >= LEAST_STAGES;
}

/* Stages that a share of so many panels has, each of its pieces beginning with one of its own. */
static int64_t stages_of(const struct qrn_matmul_params *p, int64_t share)
{
    const int64_t pieces = 2 + share / panels_of(p), n = share / QRN_STREAM_PANELS + pieces;
    return n < LEAST_STAGES ? LEAST_STAGES : n > QRN_STREAM_STAGES ? QRN_STREAM_STAGES : n;
}

/* share: panels of a block, which one row may copy before its turn; 0: nothing is. */
static bool find_cut(const struct qrn_matmul_params *p, int64_t share, struct cut *out)
{
    int rows = p->ids || p->most_rows < 1 ? 1 : QRN_STREAM_COLUMNS;
    if (rows > p->most_rows) rows = (int)p->most_rows;
    if (panels_of(p) > 4096) return false;
    if (rows == 1 && share > 0 && fits(p, 1, QRN_STREAM_ROW_SHARED, stages_of(p, share), out))
        return true;
    for (; rows > 1; rows--)
        if (fits(p, rows, QRN_FEW_MOST_SHARED, rows > QRN_STREAM_FEW ? MANY_STAGES : FEW_STAGES, out)) return true;
    if (fits(p, 1, QRN_STREAM_HALF_SHARED, QRN_STREAM_STAGES, out)) return true;
    (void)fits(p, 1, QRN_FEW_MOST_SHARED, QRN_STREAM_STAGES, out);
    return out->n_stages >= 2;
}

static bool takes(const struct qrn_matmul_params *p, bool ok)
{
    struct cut cut;
    if (!ok || !p->w.packed || p->acts != QRN_ACTS_Q8 || p->w.k <= 0) return false;
    if (p->ids ? p->n_slots > MOST_SLOTS : p->most_rows > MOST_ROWS) return false;
    if (!p->ids && p->n_matrices != 1) return false;
    /* Tiles of two products, or of rows one by one. */
    return groups_of(p) <= INT32_MAX / (2 * MOST_SLOTS) / panels_of(p) && find_cut(p, 0, &cut);
}

/* So that there is a place to hand sums over. */
static size_t scratch(struct qrn_matmul_params *p)
{
    (void)p;
    return 16;
}

/* A share is no shorter than a group. */
static int64_t n_blocks_of(const struct qrn_cuda *cuda, int64_t n_groups)
{
    return n_groups < cuda->n_multiprocessors ? n_groups : cuda->n_multiprocessors;
}

bool qrn_cuda_stream_launch(const struct qrn_cuda *cuda, const struct qrn_matmul_params *job,
                            int64_t n_tiles, struct qrn_matmul_stream_params *p,
                            struct qrn_cuda_grid *grid)
{
    const int64_t n_wanted =
        groups_of(job) * (n_tiles ? n_tiles : 1); /* groups, all rows of x at once */
    const bool waits =
        !job->ids && !n_tiles; /* where ids are needed it is its turn when it begins to copy */
    struct cut cut;
    if (!find_cut(job, waits ? n_wanted * panels_of(job) / n_blocks_of(cuda, n_wanted) : 0, &cut))
        return false;
    *p = (struct qrn_matmul_stream_params){.job = *job};
    qrn_cuda_cut_rows(&p->job, cut.tile_rows, false);
    if (n_tiles) p->job.n_tiles = n_tiles;
    const int64_t n_groups = groups_of(job) * p->job.n_tiles,
                  n_blocks = n_blocks_of(cuda, n_groups), n_panels = n_groups * panels_of(job),
                  stage = QRN_STREAM_PANELS * job->w.panel_bytes,
                  shared_bytes = cut.shared_bytes < QRN_FEW_ALONE_SHARED ? QRN_FEW_ALONE_SHARED
                                                                         : cut.shared_bytes;
    p->handover = cuda->handover;
    p->share = (int32_t)(n_panels / n_blocks);
    p->n_longer = (int32_t)(n_panels % n_blocks);
    p->n_panels = (int32_t)panels_of(job);
    p->n_groups = (int32_t)groups_of(job);
    p->n_stages = cut.n_stages;
    p->n_early = waits ? EARLY : cut.n_stages;
    p->n_asked = waits ? ASKED : 0;
    p->pace = (int32_t)(stage / PACE);
    p->stage_bytes = (int32_t)stage;
    p->flip = QRN_STREAM_FLIP;
    p->sums_at = cut.n_stages * p->stage_bytes;
    p->x_at = p->sums_at +
              cut.n_stages * qrn_stream_stage_sums(p->job.tile_rows) * (int32_t)sizeof(float);
    p->d_at = p->x_at + p->n_panels * QRN_STREAM_X;
    p->x_pitch = qrn_stream_x_pitch(p->n_panels);
    *grid = (struct qrn_cuda_grid){.n_blocks = n_blocks,
                                   .n_threads = (unsigned)qrn_stream_threads(p->job.tile_rows),
                                   .shared_bytes = (unsigned)shared_bytes};
    return true;
}

void qrn_cuda_queue_stream(struct qrn_cuda_stream *s, const struct qrn_matmul_params *job,
                           const struct qrn_matmul_params *second)
{
    struct qrn_matmul_stream_params p;
    struct qrn_cuda_grid grid;
    if ((job->ids ? job->n_slots : job->most_rows) == 0 || job->w.n == 0) return;
    if (!qrn_cuda_stream_launch(s->cuda, job, second ? 2 * job->n_slots : 0, &p, &grid)) return;
    if (second) {
        p.second_w = (int64_t)(second->w.packed - job->w.packed);
        p.second_out = (int64_t)(second->out.data - job->out.data);
    }
    qrn_cuda_launch(s, &stream_of[job->w.dtype][form_of(p.job.tile_rows)], grid, &p);
}

static void run(struct qrn_cuda_stream *s, struct qrn_matmul_params *job)
{
    qrn_cuda_queue_stream(s, job, NULL);
}

static const char serves[] = "packed weights, 8-bit activations: at most 64 rows of x or slots";

QRN_CUDA_MATMUL_KERNEL_NEEDING(matmul, stream, QRN_CUDA_SM90, takes, scratch, run, serves);
QRN_CUDA_MATMUL_KERNEL_NEEDING(matmul_id, stream, QRN_CUDA_SM90, takes, scratch, run, serves);
