/* SPDX-License-Identifier: MIT
 * embedding of packed tables. */
#include "backends/cuda/matmul_job.h"

QRN_CUDA_IMAGE(embedding_blocks);

static bool supports(const void *args)
{
    const struct qrn_embedding_args *a = args;
    struct qrn_weights_params w;
    return a->layout == QRN_LAYOUT_PACKED &&
           qrn_cuda_weights(&a->table, &a->scales, &a->biases, true, &w);
}

static void run(void *stream, const void *args)
{
    static const struct qrn_cuda_function f = {qrn_cuda_image_embedding_blocks,
                                               "qrn_embedding_blocks", 0};
    const struct qrn_embedding_args *a = args;
    struct qrn_embedding_blocks_params p = {.shape = qrn_rows_shape(&a->out),
                                            .out = qrn_rows(&a->out),
                                            .ids = (uint64_t)(uintptr_t)a->ids.data};
    (void)qrn_cuda_weights(&a->table, &a->scales, &a->biases, true, &p.w);
    p.n_blocks = a->out.shape[0] * ((p.shape.d + 31) / 32);
    qrn_cuda_launch(stream, &f, qrn_grid_of_warps((p.n_blocks + 31) / 32), &p);
}

const struct qrn_kernel qrn_cuda_embedding_blocks = {
    .op = QRN_OP_embedding,
    .name = "cuda.embedding.blocks",
    .needs = QRN_CUDA_SM80,
    .supports = supports,
    .run = run,
    .serves = "tables packed by this device",
};
