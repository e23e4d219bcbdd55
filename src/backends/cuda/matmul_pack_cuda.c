/* SPDX-License-Identifier: MIT
 * matmul_pack of types that have a form as integers, for activations that are rounded, one image for both
 * ways: with others they stay in rows, as plain floats do, which rows are as good for. */
#include "backends/cuda/matmul_job.h"

QRN_CUDA_IMAGE(matmul_pack);

static size_t output_bytes(const void *args)
{
    const struct qrn_matmul_pack_args *a = args;
    struct qrn_weights_params w;
    if (a->activation == QRN_ACT_F32) return 0;
    return qrn_cuda_packed_bytes(&a->w, &a->scales, &a->biases, &w);
}

/* packed may be absent: a query. */
static bool supports(const void *args)
{
    const struct qrn_matmul_pack_args *a = args;
    const size_t n_bytes = output_bytes(args);
    if (n_bytes == 0) return false;
    return a->packed.n_dims == 0 ||
           ((uint64_t)a->packed.shape[0] >= n_bytes && (uintptr_t)a->packed.data % 16 == 0);
}

static void run(void *stream, const void *args)
{
    static const struct qrn_cuda_function f = {qrn_cuda_image_matmul_pack, "qrn_matmul_pack", 0};
    const struct qrn_matmul_pack_args *a = args;
    struct qrn_matmul_pack_params p = {.n_matrices = a->w.n_dims > 2 ? a->w.shape[0] : 1};
    (void)qrn_cuda_packed_bytes(&a->w, &a->scales, &a->biases, &p.w);
    p.w.packed = (uint64_t)(uintptr_t)a->packed.data;
    const int64_t n_groups = (p.w.n + QRN_PANEL_ROWS - 1) / QRN_PANEL_ROWS,
                  n_panels = (p.w.k + QRN_PANEL_K - 1) / QRN_PANEL_K;
    struct qrn_cuda_grid grid = qrn_grid_of_warps(2 * p.n_matrices * n_groups * n_panels);
    grid.n_threads = 128;
    qrn_cuda_launch(stream, &f, grid, &p);
}

const struct qrn_kernel qrn_cuda_matmul_pack_panels = {
    .op = QRN_OP_matmul_pack,
    .name = "cuda.matmul_pack.panels",
    .needs = QRN_CUDA_SM80,
    .serves = "types with a form as integers, rounded activations",
    .supports = supports,
    .run = run,
    .output_bytes = output_bytes,
};
