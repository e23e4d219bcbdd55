/* SPDX-License-Identifier: MIT
 * softmax. */
#include "backends/cuda/softmax_cuda.h"
#include "backends/cuda/rows.h"

QRN_CUDA_IMAGE(softmax);

static void run(void *stream, const void *args)
{
    static const struct qrn_cuda_function f = {qrn_cuda_image_softmax, "qrn_softmax", 0};
    const struct qrn_softmax_args *a = args;
    struct qrn_softmax_params p = {.shape = qrn_rows_shape(&a->x),
                                   .x = qrn_rows(&a->x),
                                   .mask = qrn_rows(&a->mask),
                                   .out = qrn_rows(&a->out),
                                   .scale = a->scale,
                                   .mask_dtype = (int32_t)a->mask.dtype};
    p.n_rows = qrn_n_rows(&p.shape);
    const int64_t most = 1 << 20;
    qrn_cuda_launch(stream, &f,
                    (struct qrn_cuda_grid){.n_blocks = p.shape.d == 0    ? 0
                                                       : p.n_rows < most ? p.n_rows
                                                                         : most,
                                           .n_threads = QRN_THREADS},
                    &p);
}

const struct qrn_kernel qrn_cuda_softmax_rows = {
    .op = QRN_OP_softmax,
    .name = "cuda.softmax.rows",
    .needs = QRN_CUDA_SM80,
    .run = run,
};
