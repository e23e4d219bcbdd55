/* SPDX-License-Identifier: MIT
 * rms_norm with all that models put around it. */
#include "backends/cuda/norm_cuda.h"
#include "backends/cuda/rows.h"

QRN_CUDA_IMAGE(norm);

static void run(void *stream, const void *args)
{
    static const struct qrn_cuda_function warp = {qrn_cuda_image_norm, "qrn_rms_norm_warp", 0},
                                          block = {qrn_cuda_image_norm, "qrn_rms_norm_block", 0};
    const struct qrn_rms_norm_args *a = args;
    struct qrn_rms_norm_params p = {.shape = qrn_rows_shape(&a->x),
                                    .x = qrn_rows(&a->x),
                                    .residual = qrn_rows(&a->residual),
                                    .gate = qrn_rows(&a->gate),
                                    .sum = qrn_rows(&a->sum),
                                    .out = qrn_rows(&a->out),
                                    .rounded = qrn_rows(&a->rounded),
                                    .eps = a->eps,
                                    .rounded_dtype = (int32_t)a->rounded.dtype,
                                    .weight =
                                        a->weight.n_dims ? (uint64_t)(uintptr_t)a->weight.data : 0};
    const bool short_rows = p.shape.d <= QRN_NORM_WARP_ROW;
    p.n_rows = qrn_n_rows(&p.shape);
    qrn_cuda_launch(stream, short_rows ? &warp : &block,
                    qrn_grid_of_warps(short_rows ? p.n_rows : p.n_rows * QRN_WARPS), &p);
}

const struct qrn_kernel qrn_cuda_rms_norm_rows = {
    .op = QRN_OP_rms_norm,
    .name = "cuda.rms_norm.rows",
    .needs = QRN_CUDA_SM80,
    .run = run,
};
