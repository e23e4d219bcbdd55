/* SPDX-License-Identifier: MIT
 * embedding of rows of any type. */
#include "backends/cuda/embedding_cuda.h"
#include "backends/cuda/rows.h"
#include "ops/matmul_common.h"

QRN_CUDA_IMAGE(embedding);

static bool supports(const void *args)
{
    const struct qrn_embedding_args *a = args;
    return a->layout == QRN_LAYOUT_ROWS;
}

static void set_codes(struct qrn_embedding_params *p, const struct qrn_embedding_args *a)
{
    p->group = qrn_mlx_group(&a->table, &a->scales);
    p->scales = (uint64_t)(uintptr_t)a->scales.data;
    p->biases = (uint64_t)(uintptr_t)a->biases.data;
    p->scales_stride = a->scales.stride[0] * qrn_dtype_info(a->scales.dtype)->block_bytes;
    p->biases_stride = a->biases.stride[0] * qrn_dtype_info(a->biases.dtype)->block_bytes;
    p->scales_dtype = (int32_t)a->scales.dtype;
    p->biases_dtype = (int32_t)a->biases.dtype;
}

static void run(void *stream, const void *args)
{
    static const struct qrn_cuda_function f = {qrn_cuda_image_embedding, "qrn_embedding", 0};
    const struct qrn_embedding_args *a = args;
    struct qrn_embedding_params p = {.shape = qrn_rows_shape(&a->out),
                                     .out = qrn_rows(&a->out),
                                     .ids = a->ids.data,
                                     .table = (uint64_t)(uintptr_t)a->table.data,
                                     .table_stride = qrn_rows(&a->table).stride[2],
                                     .n_vocab = a->table.shape[0],
                                     .table_type = qrn_row_type(a->table.dtype)};
    if (qrn_is_mlx(a->table.dtype)) set_codes(&p, a);
    p.pieces_per_row = qrn_pieces_per_row(&p.shape);
    p.n_pieces = qrn_n_rows(&p.shape) * p.pieces_per_row;
    qrn_cuda_launch(stream, &f, qrn_grid_of_warps(p.n_pieces), &p);
}

const struct qrn_kernel qrn_cuda_embedding_rows = {
    .op = QRN_OP_embedding,
    .name = "cuda.embedding.rows",
    .needs = QRN_CUDA_SM80,
    .serves = "tables that are not packed",
    .supports = supports,
    .run = run,
};
