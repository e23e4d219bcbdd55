/* SPDX-License-Identifier: MIT
 * matmul and matmul_id of plain floats in rows with float32 activations. */
#include "backends/cuda/matmul_floats_cuda.h"
#include "backends/cuda/matmul_prepare.h"
#include "backends/cuda/rows.h"

QRN_CUDA_IMAGE(matmul_floats);

/* LEAST: rows of x that tiles are worth. */
enum { FEW_WARPS = 4, LEAST = 16 };

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

/* Bytes of struct tiles_shared, weights of so many bytes. */
#define SHARED(weights, bytes)                                                                   \
    (QRN_MATMUL_FLOATS_STAGES * QRN_PIECE * (QRN_MATMUL_FLOATS_ROWS * 4 + (weights) * (bytes)) + \
     8 * (QRN_MATMUL_FLOATS_ROWS + (weights)))
#define TILES(infix, suffix, weights, bytes)                                                    \
    {                                                                                           \
        qrn_cuda_image_matmul_floats, "qrn_matmul_floats_" infix suffix, SHARED(weights, bytes) \
    }
#define TILES_OF(suffix, bytes)                                     \
    {                                                               \
        TILES("", suffix, QRN_MATMUL_FLOATS_LONG, bytes),           \
            TILES("short_", suffix, QRN_MATMUL_FLOATS_SHORT, bytes) \
    }

static int64_t groups_of(const struct qrn_matmul_params *p, int weights)
{
    return (p->w.n + weights - 1) / weights;
}

/* A product by tiles: long ones, or short ones where not half of all multiprocessors would have one. */
static void run_tiles(struct qrn_cuda_stream *s, struct qrn_matmul_params *p,
                      const struct qrn_cuda_function f[2])
{
    qrn_cuda_cut_rows(p, QRN_MATMUL_FLOATS_ROWS, false);
    const int64_t n_long = p->n_tiles * groups_of(p, QRN_MATMUL_FLOATS_LONG);
    const bool is_short = 2 * n_long < s->cuda->n_multiprocessors;
    const int weights = is_short ? QRN_MATMUL_FLOATS_SHORT : QRN_MATMUL_FLOATS_LONG;
    qrn_cuda_launch(
        s, &f[is_short],
        (struct qrn_cuda_grid){.n_blocks = p->n_tiles * groups_of(p, weights),
                               .n_threads = 32 * (unsigned)QRN_MATMUL_FLOATS_WARPS(weights),
                               .shared_bytes = (unsigned)f[is_short].max_shared_bytes},
        p);
}

static void run(struct qrn_cuda_stream *s, struct qrn_matmul_params *p)
{
    static const struct qrn_cuda_function one = {qrn_cuda_image_matmul_floats,
                                                 "qrn_matmul_floats_1", 0},
                                          four = {qrn_cuda_image_matmul_floats,
                                                  "qrn_matmul_floats_4", 0};
    static const struct qrn_cuda_function tiles[QRN_DTYPE_COUNT][2] = {
        [QRN_F32] = TILES_OF("f32", 4),
        [QRN_F16] = TILES_OF("f16", 2),
        [QRN_BF16] = TILES_OF("bf16", 2)};
    const struct qrn_cuda_function *f = tiles[p->w.dtype];
    if (f->name && !p->ids && p->most_rows >= LEAST && is_aligned(p)) {
        run_tiles(s, p, f);
        return;
    }
    const bool is_one = p->ids || p->most_rows == 1;
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
