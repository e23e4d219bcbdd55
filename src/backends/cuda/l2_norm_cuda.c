/* SPDX-License-Identifier: MIT
 * l2_norm. */
#include "backends/cuda/norm_cuda.h"
#include "backends/cuda/rows.h"

QRN_CUDA_IMAGE(norm);

static void run(void *stream, const void *args)
{
    static const struct qrn_cuda_function warp = {qrn_cuda_image_norm, "qrn_l2_norm_warp", 0},
                                          block = {qrn_cuda_image_norm, "qrn_l2_norm_block", 0};
    const struct qrn_l2_norm_args *a = args;
    struct qrn_l2_norm_params p = {.shape = qrn_rows_shape(&a->x),
                                   .x = qrn_rows(&a->x),
                                   .out = qrn_rows(&a->out),
                                   .eps = a->eps,
                                   .scale = a->scale != 0.0f ? a->scale : 1.0f};
    const bool short_rows = p.shape.d <= QRN_NORM_WARP_ROW;
    p.n_rows = qrn_n_rows(&p.shape);
    qrn_cuda_launch(stream, short_rows ? &warp : &block,
                    qrn_grid_of_warps(short_rows ? p.n_rows : p.n_rows * QRN_WARPS), &p);
}

const struct qrn_kernel qrn_cuda_l2_norm_rows = {
    .op = QRN_OP_l2_norm,
    .name = "cuda.l2_norm.rows",
    .needs = QRN_CUDA_SM80,
    .run = run,
};
