/* SPDX-License-Identifier: MIT
 * matmul and matmul_id of plain floats in rows with float32 activations. */
#include "backends/cuda/matmul_floats_cuda.h"
#include "backends/cuda/matmul_prepare.h"

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

static const struct qrn_cuda_function *tiles_for(int32_t dtype)
{
    enum { /* struct tiles_shared */
           X_BYTES = QRN_MATMUL_FLOATS_ROWS * 512,
           W_BYTES = QRN_MATMUL_FLOATS_WEIGHTS * 512,
           ROWS = (QRN_MATMUL_FLOATS_ROWS + QRN_MATMUL_FLOATS_WEIGHTS) * 8,
           F32_BYTES = QRN_MATMUL_FLOATS_STAGES * (X_BYTES + W_BYTES) + ROWS,
           HALF_BYTES = QRN_MATMUL_FLOATS_STAGES * (X_BYTES + W_BYTES / 2) + ROWS
    };
    static const struct qrn_cuda_function f32 = {qrn_cuda_image_matmul_floats,
                                                 "qrn_matmul_floats_f32", F32_BYTES},
                                          f16 = {qrn_cuda_image_matmul_floats,
                                                 "qrn_matmul_floats_f16", HALF_BYTES},
                                          bf16 = {qrn_cuda_image_matmul_floats,
                                                  "qrn_matmul_floats_bf16", HALF_BYTES};
    return dtype == QRN_F32 ? &f32 : dtype == QRN_F16 ? &f16 : dtype == QRN_BF16 ? &bf16 : NULL;
}

/* Blocks of tiles; p says then how rows are cut for them. */
static int64_t cut_tiles(struct qrn_matmul_params *p)
{
    qrn_cuda_cut_rows(p, QRN_MATMUL_FLOATS_ROWS, false);
    return p->n_tiles * ((p->w.n + QRN_MATMUL_FLOATS_WEIGHTS - 1) / QRN_MATMUL_FLOATS_WEIGHTS);
}

static void run_tiles(struct qrn_cuda_stream *s, struct qrn_matmul_params *p,
                      const struct qrn_cuda_function *f)
{
    qrn_cuda_launch(s, f,
                    (struct qrn_cuda_grid){.n_blocks = cut_tiles(p),
                                           .n_threads = 32 * QRN_MATMUL_FLOATS_WARPS,
                                           .shared_bytes = (unsigned)f->max_shared_bytes},
                    p);
}

static void run(struct qrn_cuda_stream *s, struct qrn_matmul_params *p)
{
    static const struct qrn_cuda_function one = {qrn_cuda_image_matmul_floats,
                                                 "qrn_matmul_floats_1", 0},
                                          four = {qrn_cuda_image_matmul_floats,
                                                  "qrn_matmul_floats_4", 0};
    const struct qrn_cuda_function *f = tiles_for(p->w.dtype);
    /* A few blocks of tiles take longer than a warp for each output of four rows. */
    if (f && !p->ids && p->most_rows >= LEAST && is_aligned(p) &&
        8 * cut_tiles(p) >= s->cuda->n_multiprocessors) {
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
