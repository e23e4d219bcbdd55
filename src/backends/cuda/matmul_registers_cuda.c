/* SPDX-License-Identifier: MIT
 * matmul of packed weights with up to 128 rows of activations rounded to bf16, on Hopper. */
#include "backends/cuda/matmul_maps.h"
#include "backends/cuda/matmul_prepare.h"
#include "backends/cuda/matmul_registers.h"
#include "backends/cuda/matmul_registers_cuda.h"

QRN_CUDA_IMAGE(matmul_registers_blocks_sm90a);
QRN_CUDA_IMAGE(matmul_registers_k_sm90a);
QRN_CUDA_IMAGE(matmul_registers_mlx_sm90a);
QRN_CUDA_IMAGE(matmul_registers_add_sm90a);

/* MOST_BLOCKS: for whose pieces there is scratch.  LEAST_PARTS: so many parts of each tile, or more,
 * are equal ones.  EARLY: stages whose weights are copied before the launch's turn. */
enum { MOST_SHARED = 220 * 1024, MOST_BLOCKS = 144, LEAST_PARTS = 5, LEAST_STAGES = 2, EARLY = 3 };

/* Functions of a type: for up to 32, 64 and 128 rows of x. */
#define REGISTERS(file, NAME)                                        \
    [QRN_##NAME] = {{qrn_cuda_image_matmul_registers_##file##_sm90a, \
                     "qrn_matmul_registers32_" #NAME, MOST_SHARED},  \
                    {qrn_cuda_image_matmul_registers_##file##_sm90a, \
                     "qrn_matmul_registers64_" #NAME, MOST_SHARED},  \
                    {qrn_cuda_image_matmul_registers_##file##_sm90a, \
                     "qrn_matmul_registers128_" #NAME, MOST_SHARED}}
static const struct qrn_cuda_function registers_of[QRN_DTYPE_COUNT][3] = {
    REGISTERS(blocks, Q4_0), REGISTERS(blocks, Q4_1),  REGISTERS(blocks, Q5_0),
    REGISTERS(blocks, Q5_1), REGISTERS(blocks, Q8_0),  REGISTERS(blocks, IQ4_NL),
    REGISTERS(k, Q2_K),      REGISTERS(blocks, MXFP4), REGISTERS(k, Q3_K),
    REGISTERS(k, Q4_K),      REGISTERS(k, Q5_K),       REGISTERS(k, Q6_K),
    REGISTERS(k, IQ4_XS),    REGISTERS(k, TQ1_0),      REGISTERS(k, TQ2_0),
    REGISTERS(mlx, MLX_Q2),  REGISTERS(mlx, MLX_Q3),   REGISTERS(mlx, MLX_Q4),
    REGISTERS(mlx, MLX_Q5),  REGISTERS(mlx, MLX_Q6),   REGISTERS(mlx, MLX_Q8),
};

/* Which of them. */
static int form_of(const struct qrn_matmul_params *p)
{
    return (p->most_rows > 32) + (p->most_rows > 64);
}

static int columns_of(const struct qrn_matmul_params *p)
{
    return 32 << form_of(p);
}

static int tile_rows(const struct qrn_matmul_params *p)
{
    return qrn_registers_weights(columns_of(p));
}

static int64_t tiles_of(const struct qrn_matmul_params *p)
{
    return (p->w.n + tile_rows(p) - 1) / tile_rows(p);
}

static int64_t panels_of(const struct qrn_matmul_params *p)
{
    return (p->w.k + QRN_PANEL_K - 1) / QRN_PANEL_K;
}

static int64_t x_bytes(const struct qrn_matmul_params *p)
{
    return columns_of(p) * QRN_PANEL_K * 2;
}

/* Of a stage: x, panels; wgmma wants x aligned to 1024. */
static int64_t stage_bytes(const struct qrn_matmul_params *p)
{
    return (x_bytes(p) + tile_rows(p) / QRN_PANEL_ROWS * p->w.panel_bytes + 1023) / 1024 * 1024;
}

/* Floats from a row of out to the next one; 0: they differ. */
static int64_t out_apart(const struct qrn_matmul_params *p)
{
    return qrn_one_stride(&p->out_shape, &p->out) / (int64_t)sizeof(float);
}

static bool takes(const struct qrn_matmul_params *p, bool ok)
{
    if (!ok || !p->w.packed || p->acts != QRN_ACTS_BF16 || !p->any_order || p->ids) return false;
    if (p->n_matrices != 1 || p->most_rows < 1 || p->most_rows > QRN_REGISTERS_MOST_X) return false;
    if (p->w.k <= 0 || p->w.n <= 0 || !registers_of[p->w.dtype][0].name) return false;
    if (out_apart(p) == 0) return false;
    return p->w.k < INT32_MAX / 2 && p->w.n < INT32_MAX / 2 &&
           tiles_of(p) < INT32_MAX / 2 / panels_of(p) &&
           1024 + LEAST_STAGES * stage_bytes(p) <= MOST_SHARED;
}

static size_t whole(size_t n_bytes)
{
    return (n_bytes + 127) / 128 * 128;
}

/* Sums of a block's two pieces, or of its part. */
static size_t scratch(struct qrn_matmul_params *p)
{
    const size_t piece = sizeof(float) * (size_t)(tile_rows(p) * columns_of(p));
    return whole(qrn_cuda_x16_bytes(p)) + 2 * MOST_BLOCKS * piece;
}

/* How tiles are cut for so many blocks; how many there are then. */
static int64_t cut(int64_t n_blocks, struct qrn_matmul_registers_params *p)
{
    const int64_t n_units = (int64_t)p->n_tiles * p->n_panels, n_parts = n_blocks / p->n_tiles;
    if (n_parts >= LEAST_PARTS) {
        p->n_parts = (int32_t)(n_parts < p->n_panels ? n_parts : p->n_panels);
        return (int64_t)p->n_tiles * p->n_parts;
    }
    if (n_blocks > n_units) n_blocks = n_units;
    p->share = (int32_t)(n_units / n_blocks);
    p->n_longer = (int32_t)(n_units % n_blocks);
    return n_blocks;
}

static int64_t most_blocks(const struct qrn_cuda *cuda)
{
    return cuda->n_multiprocessors < MOST_BLOCKS ? cuda->n_multiprocessors : MOST_BLOCKS;
}

static struct qrn_matmul_registers_params queue(struct qrn_cuda_stream *s,
                                                const struct qrn_matmul_params *job, bool to_rows)
{
    const int columns = columns_of(job);
    const int64_t stage = stage_bytes(job);
    int64_t n_stages = (MOST_SHARED - 1024) / stage; /* the ring is aligned to 1024 */
    if (n_stages > QRN_REGISTERS_MOST_STAGES) n_stages = QRN_REGISTERS_MOST_STAGES;
    struct qrn_matmul_registers_params p = {.job = *job,
                                            .sums = s->scratch + whole(qrn_cuda_x16_bytes(job)),
                                            .of_part = job->most_rows * job->w.n,
                                            .out_apart = out_apart(job),
                                            .n_tiles = (int32_t)tiles_of(job),
                                            .n_panels = (int32_t)panels_of(job),
                                            .to_rows = to_rows,
                                            .n_stages = (int32_t)n_stages,
                                            .stage_bytes = (int32_t)stage,
                                            .x_bytes = (int32_t)x_bytes(job),
                                            .n_early =
                                                (int32_t)(n_stages < EARLY ? n_stages : EARLY)};
    const int64_t n_blocks = cut(most_blocks(s->cuda), &p);
    qrn_cuda_map_x16(s, job, s->scratch, columns, &p.x);
    qrn_cuda_launch(s, &registers_of[job->w.dtype][form_of(job)],
                    (struct qrn_cuda_grid){.n_blocks = n_blocks,
                                           .n_threads = (unsigned)qrn_registers_threads(columns),
                                           .shared_bytes = (unsigned)(1024 + n_stages * stage)},
                    &p);
    return p;
}

bool qrn_cuda_registers_have_parts(const struct qrn_cuda *cuda, const struct qrn_matmul_args *args)
{
    struct qrn_matmul_params job;
    (void)qrn_cuda_matmul_job(args, &job);
    struct qrn_matmul_registers_params p = {.n_tiles = (int32_t)tiles_of(&job),
                                            .n_panels = (int32_t)panels_of(&job)};
    (void)cut(most_blocks(cuda), &p);
    return p.n_parts > 1;
}

struct qrn_cuda_parts qrn_cuda_queue_registers(struct qrn_cuda_stream *s,
                                               const struct qrn_matmul_args *args)
{
    struct qrn_matmul_params job;
    (void)qrn_cuda_matmul_job(args, &job);
    const struct qrn_matmul_registers_params p = queue(s, &job, true);
    return (struct qrn_cuda_parts){.sums = p.sums, .apart = p.of_part, .n = p.n_parts};
}

/* For all results of so many tiles. */
static struct qrn_cuda_grid grid_of_sums(const struct qrn_matmul_params *job, int64_t n_tiles)
{
    const int64_t n_results = (job->most_rows + 7) / 8 * 4,
                  n_threads =
                      n_results / QRN_REGISTERS_ADD * qrn_registers_multipliers(columns_of(job));
    return (struct qrn_cuda_grid){.n_blocks = n_threads / QRN_REGISTERS_ADD_THREADS,
                                  .n_blocks_y = (unsigned)n_tiles,
                                  .n_threads = QRN_REGISTERS_ADD_THREADS};
}

static void run(struct qrn_cuda_stream *s, struct qrn_matmul_params *job)
{
    static const struct qrn_cuda_function add[3] = {
        {qrn_cuda_image_matmul_registers_add_sm90a, "qrn_matmul_registers32_add", 0},
        {qrn_cuda_image_matmul_registers_add_sm90a, "qrn_matmul_registers64_add", 0},
        {qrn_cuda_image_matmul_registers_add_sm90a, "qrn_matmul_registers128_add", 0}};
    const struct qrn_matmul_registers_params p = queue(s, job, false);
    if (p.n_parts <= 1 && p.n_longer == 0 && p.share % p.n_panels == 0)
        return; /* tiles are whole */
    qrn_cuda_launch(s, &add[form_of(job)], grid_of_sums(job, p.n_tiles), &p);
}

bool qrn_cuda_registers_end_tiles_at(const struct qrn_matmul_args *args, int64_t n)
{
    struct qrn_matmul_params job;
    (void)qrn_cuda_matmul_job(args, &job);
    return n % tile_rows(&job) == 0;
}

void qrn_cuda_registers_silu(struct qrn_cuda_stream *s, const struct qrn_matmul_args *args,
                             const struct qrn_tensor *middle)
{
    static const struct qrn_cuda_function silu[3] = {
        {qrn_cuda_image_matmul_registers_add_sm90a, "qrn_matmul_registers32_silu", 0},
        {qrn_cuda_image_matmul_registers_add_sm90a, "qrn_matmul_registers64_silu", 0},
        {qrn_cuda_image_matmul_registers_add_sm90a, "qrn_matmul_registers128_silu", 0}};
    struct qrn_matmul_params job;
    (void)qrn_cuda_matmul_job(args, &job);
    const struct qrn_matmul_registers_silu_params p = {.product = queue(s, &job, false),
                                                       .shape = qrn_rows_shape(middle),
                                                       .middle = qrn_rows(middle),
                                                       .is_bf16 = middle->dtype == QRN_BF16};
    qrn_cuda_launch(s, &silu[form_of(&job)], grid_of_sums(&job, p.shape.d / tile_rows(&job)), &p);
}

static const char serves[] = "packed weights, bf16 activations: at most 128 rows of x in any order";

QRN_CUDA_MATMUL_KERNEL_NEEDING(matmul, registers, QRN_CUDA_SM90, takes, scratch, run, serves);
