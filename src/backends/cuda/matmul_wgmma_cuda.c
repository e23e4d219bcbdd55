/* SPDX-License-Identifier: MIT
 * matmul and matmul_id of many rows on Hopper's tensor cores: bf16 weights in rows, and packed ones, with
 * activations rounded to bf16. */
#include "backends/cuda/matmul_experts.h"
#include "backends/cuda/matmul_maps.h"
#include "backends/cuda/matmul_prepare.h"
#include "backends/cuda/matmul_prompts.h"
#include "backends/cuda/matmul_wgmma.h"
#include "backends/cuda/matmul_wgmma_cuda.h"
#include "backends/cuda/rows.h"
#include "backends/cuda/tensor_map.h"

QRN_CUDA_IMAGE(matmul_wgmma_bf16_sm90a);
QRN_CUDA_IMAGE(matmul_wgmma_blocks_sm90a);
QRN_CUDA_IMAGE(matmul_wgmma_k_sm90a);
QRN_CUDA_IMAGE(matmul_wgmma_mlx_sm90a);
QRN_CUDA_IMAGE(matmul_wgmma_add_sm90a);

/* Fewer rows than LEAST of bf16 weights are others' work (matmul_parts_cuda.c, matmul_several_cuda.c).  MOST_PARTS: of k
 * of all tiles that have parts, for which there is scratch; of one tile. */
enum { N_THREADS = 384, LEAST = 65, MOST_SHARED = 229888, MOST_PARTS = 144, MOST_OF_TILE = 16 };

#define TILES(file, NAME)                                                                        \
    [QRN_##NAME] = {                                                                             \
        {qrn_cuda_image_matmul_wgmma_##file##_sm90a, "qrn_matmul_wgmma128_" #NAME, MOST_SHARED}, \
        {qrn_cuda_image_matmul_wgmma_##file##_sm90a, "qrn_matmul_wgmma256_" #NAME, MOST_SHARED}}
static const struct qrn_cuda_function tiles[QRN_DTYPE_COUNT][2] = {
    TILES(bf16, BF16),   TILES(blocks, Q4_0), TILES(blocks, Q4_1),   TILES(blocks, Q5_0),
    TILES(blocks, Q5_1), TILES(blocks, Q8_0), TILES(blocks, IQ4_NL), TILES(blocks, MXFP4),
    TILES(k, Q2_K),      TILES(k, Q3_K),      TILES(k, Q4_K),        TILES(k, Q5_K),
    TILES(k, Q6_K),      TILES(k, IQ4_XS),    TILES(k, TQ1_0),       TILES(k, TQ2_0),
    TILES(mlx, MLX_Q2),  TILES(mlx, MLX_Q3),  TILES(mlx, MLX_Q4),    TILES(mlx, MLX_Q5),
    TILES(mlx, MLX_Q6),  TILES(mlx, MLX_Q8),
};

static const struct qrn_cuda_function silu_tiles[2] = {
    {qrn_cuda_image_matmul_wgmma_bf16_sm90a, "qrn_matmul_wgmma_silu128_BF16", MOST_SHARED},
    {qrn_cuda_image_matmul_wgmma_bf16_sm90a, "qrn_matmul_wgmma_silu256_BF16", MOST_SHARED}};

static int64_t weight_tiles(const struct qrn_matmul_params *p)
{
    return (p->w.n + QRN_WGMMA_WEIGHTS - 1) / QRN_WGMMA_WEIGHTS;
}

/* Tiles are counted in 32 bits. */
static bool is_huge(const struct qrn_matmul_params *p)
{
    const int64_t n_tiles = qrn_cuda_rows_of_x(p) / 128 + 2 * p->n_matrices + 16;
    return qrn_cuda_rows_of_x(p) > INT32_MAX || n_tiles > INT32_MAX / 16 / (weight_tiles(p) + 1);
}

static bool takes(const struct qrn_matmul_params *p, bool ok)
{
    if (!ok || p->acts != QRN_ACTS_BF16 || p->w.k <= 0 || is_huge(p)) return false;
    if (p->w.packed) return true;
    if (!p->any_order || !qrn_cuda_can_map_w(p)) return false;
    if (p->ids) return p->n_slots >= LEAST;
    return p->most_rows >= LEAST;
}

static size_t whole(size_t n_bytes)
{
    return (n_bytes + 127) / 128 * 128;
}

static size_t x_bytes(const struct qrn_matmul_params *p)
{
    return whole(qrn_cuda_x16_bytes(p));
}

/* Whether tiles may be cut in parts of k. */
static bool may_have_parts(const struct qrn_matmul_params *p)
{
    return p->any_order && !p->ids;
}

static size_t partial_bytes(void)
{
    return (size_t)QRN_WGMMA_WEIGHTS * 256 * sizeof(float);
}

/* Where tiles are cut otherwise (matmul_prompts.h), for sums that a block hands over. */
_Static_assert((int)QRN_PROMPTS_MOST_BLOCKS <= (int)MOST_PARTS &&
                   (int)(QRN_PROMPTS_WEIGHTS * QRN_PROMPTS_MOST_X) ==
                       (int)(QRN_WGMMA_WEIGHTS * 256),
               "as large as those of parts");

static size_t scratch(struct qrn_matmul_params *p)
{
    if (qrn_cuda_experts_take(p)) return qrn_cuda_experts_scratch(p);
    qrn_cuda_cut_rows(p, 128, true);
    const size_t partials = may_have_parts(p) ? MOST_PARTS * partial_bytes() : 0;
    return x_bytes(p) + whole(qrn_cuda_slots_bytes(p)) + partials;
}

/* How x is cut: the rows of a tile, how many tiles of 256 are left whole, and how many parts of k the others
 * have; 0: they are cut in halves of x. */
struct cut {
    int n_tokens;
    int64_t n_tiles, n_whole;
    int n_parts;
};

/* Time of n tiles in parts, as many as there is one block for, where a whole one takes `each`: a part has its steps,
 * and beginning, storing sums and adding them up take as long as OTHER steps more. */
static int64_t time_of_parts(const struct qrn_matmul_params *p, int64_t n, int n_blocks, int each,
                             int *parts)
{
    enum { OTHER = 20 };
    const int64_t steps = (p->w.k + QRN_WGMMA_K - 1) / QRN_WGMMA_K, n_panels = (steps + 1) / 2;
    int64_t most = n_blocks < MOST_PARTS ? n_blocks / n : MOST_PARTS / n;
    if (most > MOST_OF_TILE) most = MOST_OF_TILE;
    if (most > n_panels) most = n_panels;
    *parts = (int)most;
    if (most < 2 || !may_have_parts(p)) return INT64_MAX;
    return (2 * ((n_panels + most - 1) / most) + OTHER) * each / steps;
}

/* Time of a cut, in hundredths of what a tile of 256 rows of x takes: of rounds of whole tiles, each of which takes
 * `each`, and of what is left over: as it is, in halves of x if that is one round too and a half takes `half` (0: it
 * cannot be), or in parts of k. */
static int64_t time_of(const struct qrn_matmul_params *p, int n_blocks, int each, int half,
                       struct cut *cut)
{
    const int64_t n = cut->n_tiles, rest = n % n_blocks, rounds = n / n_blocks * each;
    int n_parts = 0;
    if (rest == 0) return rounds;
    const int64_t of_parts = time_of_parts(p, rest, n_blocks, each, &n_parts);
    const bool halves = half && 2 * rest <= n_blocks;
    const int64_t otherwise = halves ? half : each;
    if (halves || of_parts < otherwise) cut->n_whole = n - rest;
    if (of_parts >= otherwise) return rounds + otherwise;
    cut->n_parts = n_parts;
    return rounds + of_parts;
}

/* Half a tile copies, and decodes, as many weights as a whole one: a little more than half the time. */
static int half_of_256(const struct qrn_matmul_params *p)
{
    return p->w.packed ? 62 : 57;
}

static struct cut tiles_of(const struct qrn_matmul_params *p, int n_tokens)
{
    const int64_t n = p->n_matrices * ((p->most_rows + n_tokens - 1) / n_tokens) * weight_tiles(p);
    return (struct cut){n_tokens, n, n, 0};
}

/* By expert: as if slots were spread evenly. */
static struct cut choose_cut(struct qrn_matmul_params *p, int n_blocks)
{
    struct cut large = tiles_of(p, 256), small = tiles_of(p, 128);
    if (p->ids) {
        const int n_tokens = p->n_slots / p->n_matrices >= 512 ? 256 : 128;
        qrn_cuda_cut_rows(p, n_tokens, true);
        const int64_t n = p->n_tiles * weight_tiles(p);
        return (struct cut){n_tokens, n, n, 0};
    }
    const int half = half_of_256(p);
    const int64_t of_large = time_of(p, n_blocks, 100, half, &large),
                  of_small = time_of(p, n_blocks, half, 0, &small);
    large = of_large <= of_small ? large : small;
    qrn_cuda_cut_rows(p, large.n_tokens, true);
    return large;
}

static int shared_bytes(const struct qrn_matmul_params *p, int n_tokens)
{
    const int64_t panels =
        p->w.packed ? QRN_WGMMA_WEIGHTS / QRN_PANEL_ROWS * QRN_WGMMA_RAW_STAGES * p->w.panel_bytes
                    : 0;
    return 1024 + (int)panels +
           qrn_wgmma_stages(p->w.dtype, n_tokens) * qrn_wgmma_stage_bytes(n_tokens);
}

/* Adds up parts. */
static void add_parts(struct qrn_cuda_stream *s, const struct qrn_matmul_wgmma_params *p)
{
    static const struct qrn_cuda_function f = {qrn_cuda_image_matmul_wgmma_add_sm90a,
                                               "qrn_matmul_wgmma_add", 0};
    if (p->n_parts == 0) return;
    qrn_cuda_launch(
        s, &f,
        (struct qrn_cuda_grid){.n_blocks = p->n_results / QRN_WGMMA_ADD,
                               .n_blocks_y = (unsigned)((p->n_work - p->n_whole) / p->n_parts),
                               .n_threads = 256},
        p);
}

static void run_prompts(struct qrn_cuda_stream *s, const struct qrn_matmul_params *job,
                        const struct qrn_silu_params *silu, bool weights_stay)
{
    struct qrn_tensor_map x;
    qrn_cuda_map_x16(s, job, s->scratch, qrn_cuda_prompts_columns(job, s->cuda->n_multiprocessors),
                     &x);
    qrn_cuda_queue_prompts(s, job, &x, s->scratch + x_bytes(job), silu, weights_stay);
}

static void queue(struct qrn_cuda_stream *s, struct qrn_matmul_params *job,
                  const struct qrn_silu_params *silu, bool weights_stay)
{
    const int n_blocks = s->cuda->n_multiprocessors;
    if (qrn_cuda_rows_of_x(job) == 0 || job->w.n == 0) return;
    if (qrn_cuda_prompts_take(job, n_blocks)) {
        run_prompts(s, job, silu, weights_stay);
        return;
    }
    if (qrn_cuda_experts_take(job)) {
        qrn_cuda_list_experts(s, job);
        qrn_cuda_queue_experts(s, job, NULL);
        return;
    }
    const struct cut cut = choose_cut(job, n_blocks);
    const int n_tokens = cut.n_tokens;
    qrn_cuda_sort_slots(s, s->scratch + x_bytes(job), job);
    struct qrn_matmul_wgmma_params p = {
        .job = *job,
        .out_stride = qrn_one_stride(&job->out_shape, &job->out),
        .silu = *silu,
        .partials = s->scratch + x_bytes(job) + whole(qrn_cuda_slots_bytes(job)),
        .n_work =
            (int32_t)(cut.n_whole + (cut.n_tiles - cut.n_whole) * (cut.n_parts ? cut.n_parts : 2)),
        .n_whole = (int32_t)cut.n_whole,
        .n_weight_tiles = (int32_t)weight_tiles(job),
        .band = job->ids          ? 1
                : n_tokens == 256 ? 8
                                  : 12,
        .n_parts = cut.n_parts,
        .n_results = n_tokens / 2};
    if (!job->w.packed) {
        const struct qrn_tensor_box box = qrn_cuda_box_of_w(job, QRN_WGMMA_K, QRN_WGMMA_WEIGHTS);
        if (silu->data)
            qrn_cuda_map_halves(s, &box, &p.w);
        else
            qrn_cuda_tensor_map(s, &box, &p.w);
    }
    qrn_cuda_map_x16(s, job, s->scratch, n_tokens, &p.x);
    qrn_cuda_launch(
        s, silu->data ? &silu_tiles[n_tokens == 256] : &tiles[job->w.dtype][n_tokens == 256],
        (struct qrn_cuda_grid){.n_blocks = p.n_work < n_blocks ? p.n_work : n_blocks,
                               .n_threads = N_THREADS,
                               .shared_bytes = (unsigned)shared_bytes(job, n_tokens)},
        &p);
    add_parts(s, &p);
}

static void run(struct qrn_cuda_stream *s, struct qrn_matmul_params *job)
{
    queue(s, job, &(struct qrn_silu_params){0}, qrn_cuda_operand_stays(s, "w"));
}

static struct qrn_silu_params silu_of(const struct qrn_silu_mul_args *silu)
{
    const struct qrn_rows_shape shape = qrn_rows_shape(&silu->out);
    const struct qrn_rows rows = qrn_rows(&silu->out);
    return (struct qrn_silu_params){
        .data = rows.data, .stride = qrn_one_stride(&shape, &rows), .n_gates = shape.d};
}

bool qrn_cuda_wgmma_makes_silu(const struct qrn_cuda *cuda, const struct qrn_matmul_args *product,
                               const struct qrn_silu_mul_args *silu)
{
    const struct qrn_silu_params made = silu_of(silu);
    struct qrn_matmul_params job;
    (void)qrn_cuda_matmul_job(product, &job);
    if (!silu->drops_inputs || silu->out.dtype != QRN_BF16 || job.n_matrices != 1) return false;
    if (made.stride <= 0 || (made.data | (uint64_t)made.stride) % 4) return false;
    if (!job.w.packed) return made.n_gates % 8 == 0;
    return made.n_gates % QRN_PANEL_ROWS == 0 &&
           qrn_cuda_prompts_take(&job, cuda->n_multiprocessors);
}

void qrn_cuda_wgmma_silu(struct qrn_cuda_stream *s, const struct qrn_matmul_args *product,
                         const struct qrn_silu_mul_args *silu, bool weights_stay)
{
    const struct qrn_silu_params made = silu_of(silu);
    struct qrn_matmul_params job;
    (void)qrn_cuda_matmul_job(product, &job);
    queue(s, &job, &made, weights_stay);
}

static const char serves[] =
    "bf16 activations: bf16 weights in rows, more than 64 rows of x in any order; packed weights";

QRN_CUDA_MATMUL_KERNEL_NEEDING(matmul, wgmma, QRN_CUDA_SM90, takes, scratch, run, serves);
QRN_CUDA_MATMUL_KERNEL_NEEDING(matmul_id, wgmma, QRN_CUDA_SM90, takes, scratch, run, serves);
