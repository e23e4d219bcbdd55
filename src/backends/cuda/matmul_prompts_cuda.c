/* SPDX-License-Identifier: MIT
 * matmul with many rows of activations rounded to bf16, on Hopper: of packed weights, decoded to registers, and of bf16
 * weights in rows. */
#include "backends/cuda/matmul_maps.h"
#include "backends/cuda/matmul_prompts.h"
#include "backends/cuda/rows.h"

QRN_CUDA_IMAGE(matmul_prompts_bf16_sm90a);
QRN_CUDA_IMAGE(matmul_prompts_blocks_sm90a);
QRN_CUDA_IMAGE(matmul_prompts_k_sm90a);
QRN_CUDA_IMAGE(matmul_prompts_mlx_sm90a);

/* ALIGNED: as rings are.  LEAST_ROWS: of packed weights.  BAND: tiles of x.  MOST_PIECES: blocks to a tile.  MANY: rows of x
 * whose rounds are so many that what is beside them is little; tiles of matmul_wgmma.cuh take 1 % less then.  IN_ROWS: of
 * weights in rows.  What things take, in panels: END, of a tile; HANDOVER, of sums, and WAITING, where a block has less than
 * a tile. */
enum {
    ALIGNED = 1024,
    LEAST_ROWS = 129,
    BAND = 4,
    MOST_PIECES = 5,
    MOST_PIECES_IN_ROWS = 3,
    MANY_IN_ROWS = 512,
    END = 3,
    HANDOVER = 6,
    WAITING = 12
};

/* Functions of a type: for tiles of 96, 128 .. 256 rows of x, those of packed weights from 160 on; of each one, and the same
 * with silu_mul of gates and ups. */
enum { N_FORMS = 6 };
#define PROMPTS_OF(file, NAME, N)                                                                 \
    {                                                                                             \
        {qrn_cuda_image_matmul_prompts_##file##_sm90a, "qrn_matmul_prompts" #N "_" #NAME,         \
         QRN_PROMPTS_MOST_SHARED},                                                                \
        {                                                                                         \
            qrn_cuda_image_matmul_prompts_##file##_sm90a, "qrn_matmul_prompts_silu" #N "_" #NAME, \
                QRN_PROMPTS_MOST_SHARED                                                           \
        }                                                                                         \
    }
#define WIDE(file, NAME)                                                                         \
    [2] = PROMPTS_OF(file, NAME, 160), PROMPTS_OF(file, NAME, 192), PROMPTS_OF(file, NAME, 224), \
    PROMPTS_OF(file, NAME, 256)
#define PROMPTS(file, NAME) [QRN_##NAME] = {WIDE(file, NAME)}
static const struct qrn_cuda_function prompts_of[QRN_DTYPE_COUNT][N_FORMS][2] = {
    [QRN_BF16] = {PROMPTS_OF(bf16, BF16, 96), PROMPTS_OF(bf16, BF16, 128), WIDE(bf16, BF16)},
    PROMPTS(blocks, Q4_0),
    PROMPTS(blocks, Q4_1),
    PROMPTS(blocks, Q5_0),
    PROMPTS(blocks, Q5_1),
    PROMPTS(blocks, Q8_0),
    PROMPTS(blocks, IQ4_NL),
    PROMPTS(blocks, MXFP4),
    PROMPTS(k, Q2_K),
    PROMPTS(k, Q3_K),
    PROMPTS(k, Q4_K),
    PROMPTS(k, Q5_K),
    PROMPTS(k, Q6_K),
    PROMPTS(k, IQ4_XS),
    PROMPTS(k, TQ1_0),
    PROMPTS(k, TQ2_0),
    PROMPTS(mlx, MLX_Q2),
    PROMPTS(mlx, MLX_Q3),
    PROMPTS(mlx, MLX_Q4),
    PROMPTS(mlx, MLX_Q5),
    PROMPTS(mlx, MLX_Q6),
    PROMPTS(mlx, MLX_Q8),
};

static int64_t panels_of(const struct qrn_matmul_params *p)
{
    return qrn_ceil_div(p->w.k, QRN_PANEL_K);
}

/* Floats from a row of out to the next one; 0: they differ. */
static int64_t out_apart(const struct qrn_matmul_params *p)
{
    return qrn_one_stride(&p->out_shape, &p->out) / (int64_t)sizeof(float);
}

/* How a product is cut: which of the functions, so many tiles, of which blocks take n_whole in turn. */
struct cut {
    int form;
    int64_t n_x_tiles, n_tiles, n_whole;
};

static int columns_of(int form)
{
    return 96 + 32 * form;
}

/* What a panel takes with so many rows of x, as many as would take that alone: packed weights are decoded however few there
 * are, others read from memory. */
static int64_t time_of_panel(const struct qrn_matmul_params *p, int n_columns)
{
    enum { DECODED = 40, READ = 170 };
    if (p->w.packed) return n_columns + DECODED;
    return (n_columns > READ ? n_columns : READ) + n_columns / 16;
}

/* Where shares would not end sooner all tiles are whole; else so many that a share of what is left is
 * larger than a tile.  Blocks with shares are not at the same k as others: weights in rows then come from memory again, for
 * which a 16th is added.  Returns what the product takes. */
static int64_t time_of(const struct qrn_matmul_params *p, int64_t n_blocks, struct cut *cut)
{
    const int64_t n = cut->n_tiles, n_panels = panels_of(p), rounds = qrn_ceil_div(n, n_blocks),
                  whole = rounds * (n_panels + END), each = n * n_panels / n_blocks + rounds * END,
                  again = p->w.packed || n < n_blocks ? 0 : each / 16,
                  shared = each + again + (n < n_blocks ? WAITING : HANDOVER);
    cut->n_whole = whole <= shared ? n : n < n_blocks ? 0 : (n / n_blocks - 1) * n_blocks;
    return (whole <= shared ? whole : shared) * time_of_panel(p, columns_of(cut->form));
}

static struct cut choose_cut(const struct qrn_matmul_params *p, int64_t n_blocks)
{
    struct cut best = {0};
    int64_t least = INT64_MAX;
    for (int form = 0; form < N_FORMS; form++) {
        if (!prompts_of[p->w.dtype][form][0].name) continue;
        const int64_t n_x = qrn_ceil_div(p->most_rows, columns_of(form));
        struct cut cut = {form, n_x, n_x * qrn_ceil_div(p->w.n, QRN_PROMPTS_WEIGHTS), 0};
        const int64_t time = time_of(p, n_blocks, &cut);
        if (time > least) continue;
        least = time;
        best = cut;
    }
    return best;
}

bool qrn_cuda_prompts_take(const struct qrn_matmul_params *job, int n_blocks)
{
    if (!job->any_order || job->ids || job->n_matrices != 1) return false;
    if (!prompts_of[job->w.dtype][N_FORMS - 1][0].name || out_apart(job) == 0) return false;
    if (job->w.packed && job->most_rows < LEAST_ROWS) return false;
    if (n_blocks > QRN_PROMPTS_MOST_BLOCKS) return false;
    if (job->w.k >= INT32_MAX / 2 || job->w.n >= INT32_MAX / 2 || job->most_rows >= INT32_MAX / 2)
        return false;
    const int64_t most_tiles =
        qrn_ceil_div(job->w.n, QRN_PROMPTS_WEIGHTS) * qrn_ceil_div(job->most_rows, columns_of(0));
    if (most_tiles >= INT32_MAX / 2 / panels_of(job)) return false;
    const int64_t n_tiles = choose_cut(job, n_blocks).n_tiles;
    if (job->w.packed) return n_tiles * MOST_PIECES >= n_blocks;
    return n_tiles * MOST_PIECES_IN_ROWS >= n_blocks &&
           (n_tiles < n_blocks || job->most_rows < MANY_IN_ROWS);
}

int qrn_cuda_prompts_columns(const struct qrn_matmul_params *job, int n_blocks)
{
    return columns_of(choose_cut(job, n_blocks).form);
}

/* As many stages of x as fit beside three panels of each group; then as many panels as fit.  What
 * they take; of weights in rows a ring of stages does. */
static int64_t cut_shared(struct qrn_matmul_prompts_params *p, int n_columns)
{
    if (!p->job.w.packed)
        return ALIGNED + qrn_prompts_rows_stages(n_columns) * qrn_prompts_rows_bytes(n_columns);
    const int64_t of_panels = QRN_PROMPTS_WEIGHTS / QRN_PANEL_ROWS * p->job.w.panel_bytes,
                  of_x = qrn_prompts_x_bytes(n_columns), room = QRN_PROMPTS_MOST_SHARED - ALIGNED;
    int64_t n_x = (room - 3 * of_panels) / of_x;
    if (n_x > QRN_PROMPTS_MOST_X_STAGES) n_x = QRN_PROMPTS_MOST_X_STAGES;
    int64_t n_panels = (room - n_x * of_x) / of_panels;
    if (n_panels > QRN_PROMPTS_MOST_PANELS) n_panels = QRN_PROMPTS_MOST_PANELS;
    p->n_x_stages = (int32_t)n_x;
    p->n_panel_stages = (int32_t)n_panels;
    return ALIGNED + n_x * of_x + n_panels * of_panels;
}

void qrn_cuda_queue_prompts(struct qrn_cuda_stream *s, const struct qrn_matmul_params *job,
                            const struct qrn_tensor_map *x, CUdeviceptr scratch,
                            const struct qrn_silu_params *silu, bool weights_stay)
{
    const int64_t n_blocks = s->cuda->n_multiprocessors;
    const struct cut cut = choose_cut(job, n_blocks);
    const int64_t n_units = (cut.n_tiles - cut.n_whole) * panels_of(job);
    struct qrn_matmul_prompts_params p = {.x = *x,
                                          .job = *job,
                                          .sums = scratch,
                                          .handover = s->cuda->handover,
                                          .out_apart = out_apart(job),
                                          .silu = *silu,
                                          .n_weight_tiles =
                                              (int32_t)qrn_ceil_div(job->w.n, QRN_PROMPTS_WEIGHTS),
                                          .n_x_tiles = (int32_t)cut.n_x_tiles,
                                          .band = BAND,
                                          .n_panels = (int32_t)panels_of(job),
                                          .n_whole = (int32_t)cut.n_whole,
                                          .share = (int32_t)(n_units / n_blocks),
                                          .n_longer = (int32_t)(n_units % n_blocks),
                                          .handover_bytes = QRN_CUDA_HANDOVER_BYTES};
    const int64_t shared = cut_shared(&p, columns_of(cut.form));
    if (!job->w.packed) {
        const struct qrn_tensor_box w = qrn_cuda_box_of_w(job, QRN_PROMPTS_K, QRN_PROMPTS_WEIGHTS);
        if (silu->data)
            qrn_cuda_map_halves(s, &w, &p.w);
        else
            qrn_cuda_tensor_map(s, &w, &p.w);
        if (weights_stay) p.n_early = qrn_prompts_rows_stages(columns_of(cut.form));
    }
    qrn_cuda_launch(s, &prompts_of[job->w.dtype][cut.form][silu->data != 0],
                    (struct qrn_cuda_grid){.n_blocks = n_blocks,
                                           .n_threads = QRN_PROMPTS_THREADS,
                                           .shared_bytes = (unsigned)shared},
                    &p);
}
