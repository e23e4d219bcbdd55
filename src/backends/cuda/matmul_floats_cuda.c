/* SPDX-License-Identifier: MIT
 * matmul and matmul_id of plain floats in rows with float32 activations. */
#include "backends/cuda/matmul_floats_cuda.h"
#include "backends/cuda/matmul_prepare.h"
#include "backends/cuda/matmul_split.h"

QRN_CUDA_IMAGE(matmul_floats);

/* LEAST: rows of x that tiles are worth; LEAST_WEIGHTS: of weights, where there are more tiles than a round.  AT_ONCE:
 * warps with an output each that a multiprocessor has room for; tiles of fewer than LEAST_K k are as fast as they are. */
enum { FEW_WARPS = 4, LEAST = 5, LEAST_WEIGHTS = 4, AT_ONCE = 12, LEAST_K = 2048 };

static bool takes(const struct qrn_matmul_params *p, bool ok)
{
    return ok && !p->w.packed && p->acts == QRN_ACTS_F32 && p->x_dtype == QRN_F32 &&
           qrn_dtype_info((enum qrn_dtype)p->w.dtype)->block_elements == 1;
}

static size_t no_scratch(struct qrn_matmul_params *p)
{
    (void)p;
    return 0;
}

/* Whether all rows begin at multiples of 16 bytes. */
static bool is_aligned(const struct qrn_matmul_params *p)
{
    uint64_t all = p->x.data | p->w.w.data;
    for (int i = 0; i < 3; i++) all |= (uint64_t)p->x.stride[i] | (uint64_t)p->w.w.stride[i];
    return all % 16 == 0;
}

/* How blocks are cut, and their kernels for weights of four bytes and of two. */
struct cut {
    int weights, rows, n_threads;
    struct qrn_cuda_function f32, f16, bf16;
};

#define KERNEL(name, weights, rows, stages, bytes)                 \
    {                                                              \
        qrn_cuda_image_matmul_floats, "qrn_matmul_floats_" name,   \
            (stages)*QRN_PIECE *((rows)*4 + (weights) * (bytes)) + \
                8 * ((rows) + (weights)) /* struct tiles_shared */ \
    }
#define CUT(infix, weights_, rows_, tile, stages)                     \
    {                                                                 \
        .weights = (weights_), .rows = (rows_),                       \
        .n_threads = 32 * ((weights_) / (tile)) * ((rows_) / (tile)), \
        .f32 = KERNEL(infix "f32", weights_, rows_, stages, 4),       \
        .f16 = KERNEL(infix "f16", weights_, rows_, stages, 2),       \
        .bf16 = KERNEL(infix "bf16", weights_, rows_, stages, 2),     \
    }
#define LONG(weights, rows, tile, stages)  CUT("", weights, rows, tile, stages)
#define SHORT(weights, rows, tile, stages) CUT("short_", weights, rows, tile, stages)

static const struct cut long_cut = QRN_MATMUL_FLOATS_LONG(LONG),
                        short_cut = QRN_MATMUL_FLOATS_SHORT(SHORT);

/* Blocks of such tiles; p says then how rows are cut. */
static int64_t cut_into(struct qrn_matmul_params *p, const struct cut *c)
{
    qrn_cuda_cut_rows(p, c->rows, false);
    return p->n_tiles * ((p->w.n + c->weights - 1) / c->weights);
}

/* A product by tiles: long ones, or short ones where not half of all multiprocessors would have one. */
static void run_tiles(struct qrn_cuda_stream *s, struct qrn_matmul_params *p)
{
    const bool is_long = 2 * cut_into(p, &long_cut) >= s->cuda->n_multiprocessors;
    const struct cut *c = is_long ? &long_cut : &short_cut;
    const struct qrn_cuda_function *f = p->w.dtype == QRN_F32   ? &c->f32
                                        : p->w.dtype == QRN_F16 ? &c->f16
                                                                : &c->bf16;
    qrn_cuda_launch(s, f,
                    (struct qrn_cuda_grid){.n_blocks = cut_into(p, c),
                                           .n_threads = (unsigned)c->n_threads,
                                           .shared_bytes = (unsigned)f->max_shared_bytes},
                    p);
}

/* Types that tiles have. */
static bool has_tiles(int32_t dtype)
{
    return dtype == QRN_F32 || dtype == QRN_F16 || dtype == QRN_BF16;
}

/* Whether every output has a warp of its own, all of them at once: gates of some sequences, which take as long as loads that
 * wait for each other. */
static bool is_one_each(const struct qrn_cuda *cuda, const struct qrn_matmul_params *p)
{
    const int64_t most = AT_ONCE * (int64_t)cuda->n_multiprocessors;
    if (p->ids || p->most_rows == 1) return true;
    return (p->most_rows < LEAST || p->w.k >= LEAST_K) && p->w.n > 0 &&
           p->most_rows <= most / p->w.n;
}

static void run(struct qrn_cuda_stream *s, struct qrn_matmul_params *p)
{
    static const struct qrn_cuda_function one = {qrn_cuda_image_matmul_floats,
                                                 "qrn_matmul_floats_1", 0},
                                          four = {qrn_cuda_image_matmul_floats,
                                                  "qrn_matmul_floats_4", 0};
    if (qrn_cuda_split_takes(s->cuda, p)) {
        qrn_cuda_queue_split(s, p);
        return;
    }
    const bool is_one = is_one_each(s->cuda, p);
    if (!is_one && has_tiles(p->w.dtype) && p->most_rows >= LEAST && is_aligned(p) &&
        (p->w.n >= LEAST_WEIGHTS || cut_into(p, &long_cut) <= s->cuda->n_multiprocessors)) {
        run_tiles(s, p);
        return;
    }
    qrn_cuda_cut_rows(p, is_one ? 1 : QRN_MATMUL_ROWS, false);
    qrn_cuda_launch(
        s, is_one ? &one : &four,
        (struct qrn_cuda_grid){.n_blocks = (p->n_tiles * p->w.n + FEW_WARPS - 1) / FEW_WARPS,
                               .n_threads = 32 * FEW_WARPS},
        p);
}

static const char serves[] = "plain floats in rows, float32 activations";

QRN_CUDA_MATMUL_KERNEL(matmul, floats, takes, no_scratch, run, serves);
QRN_CUDA_MATMUL_KERNEL(matmul_id, floats, takes, no_scratch, run, serves);
