/* SPDX-License-Identifier: MIT
 * l2_norm. */
#include "backends/cuda/norm_runs.h"

QRN_CUDA_IMAGE(norm);
QRN_CUDA_IMAGE(norm_registers);

static struct qrn_l2_norm_params params_of(const struct qrn_l2_norm_args *a)
{
    struct qrn_l2_norm_params p = {.shape = qrn_rows_shape(&a->x),
                                   .x = qrn_rows(&a->x),
                                   .out = qrn_rows(&a->out),
                                   .eps = a->eps,
                                   .scale = a->scale != 0.0f ? a->scale : 1.0f};
    p.n_rows = qrn_n_rows(&p.shape);
    return p;
}

static void run_rows(void *stream, const void *args)
{
    static const struct qrn_cuda_function warp = {qrn_cuda_image_norm, "qrn_l2_norm_warp", 0},
                                          block = {qrn_cuda_image_norm, "qrn_l2_norm_block", 0};
    const struct qrn_l2_norm_params p = params_of(args);
    const bool short_rows = p.shape.d <= QRN_NORM_WARP_ROW;
    qrn_cuda_launch(stream, short_rows ? &warp : &block,
                    qrn_grid_of_warps(short_rows ? p.n_rows : p.n_rows * QRN_WARPS), &p);
}

static bool registers_support(const void *args)
{
    const struct qrn_l2_norm_args *a = args;
    return qrn_rows_are_aligned(&a->x) && qrn_rows_are_aligned(&a->out) &&
           a->x.shape[a->x.n_dims - 1] <= QRN_NORM_WARP_ROW;
}

static void run_registers(void *stream, const void *args)
{
    static const struct qrn_cuda_function one = {qrn_cuda_image_norm_registers, "qrn_l2_norm_warp1",
                                                 0},
                                          two = {qrn_cuda_image_norm_registers, "qrn_l2_norm_warp2",
                                                 0},
                                          four = {qrn_cuda_image_norm_registers,
                                                  "qrn_l2_norm_warp4", 0};
    static const struct qrn_cuda_function runs[2] = {{qrn_cuda_image_norm_registers, "qrn_l2_norm_runs1", 0},
                                                     {qrn_cuda_image_norm_registers, "qrn_l2_norm_runs2", 0}};
    const struct qrn_l2_norm_params p = params_of(args);
    const int64_t n = qrn_cuda_norm_run(((const struct qrn_cuda_stream *)stream)->cuda, &p.shape);
    if (n > 1) {
        qrn_cuda_launch(stream, &runs[p.shape.d > 128], qrn_grid_of_warps(p.n_rows / n), &p);
        return;
    }
    qrn_cuda_launch(stream,
                    p.shape.d <= 128   ? &one
                    : p.shape.d <= 256 ? &two
                                       : &four,
                    qrn_grid_of_warps(p.n_rows), &p);
}

const struct qrn_kernel qrn_cuda_l2_norm_registers = {
    .op = QRN_OP_l2_norm,
    .name = "cuda.l2_norm.registers",
    .needs = QRN_CUDA_SM80,
    .serves = "aligned rows of up to 512",
    .supports = registers_support,
    .run = run_registers,
};

const struct qrn_kernel qrn_cuda_l2_norm_rows = {
    .op = QRN_OP_l2_norm,
    .name = "cuda.l2_norm.rows",
    .needs = QRN_CUDA_SM80,
    .run = run_rows,
};
