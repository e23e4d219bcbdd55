/* SPDX-License-Identifier: MIT */
#include "backends/cuda/matmul_exact_x.h"

#include "backends/cuda/matmul_maps.h"

QRN_CUDA_IMAGE(matmul_exact_x);

static int64_t panels_of(const struct qrn_matmul_params *job)
{
    return qrn_ceil_div(job->w.k, QRN_PANEL_K);
}

/* Rows of scales and sums: a tile may begin with the last row, scales are copied from three rows before on. */
static int64_t apart_of(const struct qrn_matmul_params *job)
{
    return (qrn_cuda_rows_of_x(job) + 3) / 4 * 4 + QRN_EXACT_X;
}

static size_t codes_bytes(const struct qrn_matmul_params *job)
{
    return (size_t)(qrn_cuda_rows_of_x(job) * panels_of(job)) * QRN_PANEL_K * sizeof(uint16_t);
}

size_t qrn_cuda_exact_x_bytes(const struct qrn_matmul_params *job)
{
    const size_t n = (size_t)(apart_of(job) * panels_of(job));
    return codes_bytes(job) + n * 16 + n * sizeof(float);
}

void qrn_cuda_exact_x(struct qrn_cuda_stream *s, CUdeviceptr scratch,
                      struct qrn_matmul_exact_params *p)
{
    static const struct qrn_cuda_function f = {qrn_cuda_image_matmul_exact_x, "qrn_matmul_exact_x",
                                               0};
    const struct qrn_form form = qrn_form_of(p->job.w.dtype);
    p->n_x = qrn_cuda_rows_of_x(&p->job);
    p->x_apart = apart_of(&p->job);
    p->codes = scratch;
    p->sums = p->codes + codes_bytes(&p->job);
    p->scales = p->sums + (size_t)(p->x_apart * p->n_panels) * 16;
    p->of_halves = form.sub != QRN_SUB_NONE;
    p->run = form.run ? form.run : p->job.w.group / 32;
    const struct qrn_tensor_box box = {.data = (const void *)(uintptr_t)p->codes,
                                       .dtype = QRN_F16,
                                       .n = p->n_panels * QRN_PANEL_K,
                                       .n_rows = p->n_x,
                                       .n_matrices = 1,
                                       .row_bytes =
                                           p->n_panels * QRN_PANEL_K * (int64_t)sizeof(uint16_t),
                                       .box_n = QRN_EXACT_BOX_K,
                                       .box_rows = QRN_EXACT_X};
    qrn_cuda_launch(s, &f, qrn_grid_of_warps(p->x_apart * p->n_panels), p);
    qrn_cuda_tensor_map(s, &box, &p->x);
}
