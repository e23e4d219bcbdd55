/* SPDX-License-Identifier: MIT
 * embedding of rows of plain floats. */
#include "backends/cuda/embedding_cuda.h"
#include "backends/cuda/rows.h"

QRN_CUDA_IMAGE(embedding);

static bool supports(const void *args)
{
    const struct qrn_embedding_args *a = args;
    const enum qrn_dtype type = a->table.dtype;
    return a->layout == QRN_LAYOUT_ROWS &&
           (type == QRN_F32 || type == QRN_F16 || type == QRN_BF16);
}

static void run(void *stream, const void *args)
{
    static const struct qrn_cuda_function f = {qrn_cuda_image_embedding, "qrn_embedding", 0};
    const struct qrn_embedding_args *a = args;
    struct qrn_embedding_params p = {
        .shape = qrn_rows_shape(&a->out), .out = qrn_rows(&a->out), .ids = a->ids.data,
        .table = (uint64_t)(uintptr_t)a->table.data,
        .table_stride = a->table.stride[0] * qrn_dtype_info(a->table.dtype)->block_bytes,
        .n_vocab = a->table.shape[0], .table_dtype = (int32_t)a->table.dtype};
    p.pieces_per_row = qrn_pieces_per_row(&p.shape);
    p.n_pieces = qrn_n_rows(&p.shape) * p.pieces_per_row;
    qrn_cuda_launch(stream, &f, qrn_grid_of_warps(p.n_pieces), &p);
}

const struct qrn_kernel qrn_cuda_embedding_rows = {
    .op = QRN_OP_embedding, .name = "cuda.embedding.rows", .needs = QRN_CUDA_SM80,
    .serves = "rows of f32, f16, bf16", .supports = supports, .run = run,
};
