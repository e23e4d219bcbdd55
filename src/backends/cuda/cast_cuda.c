/* SPDX-License-Identifier: MIT
 * cast and copy. */
#include "backends/cuda/cast_cuda.h"
#include "backends/cuda/rows.h"

QRN_CUDA_IMAGE(cast);

static void run_cast(void *stream, const void *args)
{
    static const struct qrn_cuda_function f = {qrn_cuda_image_cast, "qrn_cast", 0};
    const struct qrn_cast_args *a = args;
    struct qrn_cast_params p = {.shape = qrn_rows_shape(&a->x),
                                .x = qrn_rows(&a->x),
                                .out = qrn_rows(&a->out),
                                .x_type = qrn_row_type(a->x.dtype),
                                .out_dtype = (int32_t)a->out.dtype};
    if (qrn_is_contiguous(&a->x) && qrn_is_contiguous(&a->out))
        p.shape = (struct qrn_rows_shape){{1, 1, 1}, qrn_n_rows(&p.shape) * p.shape.d};
    p.pieces_per_row = qrn_pieces_per_row(&p.shape);
    p.n_pieces = qrn_n_rows(&p.shape) * p.pieces_per_row;
    qrn_cuda_launch(stream, &f, qrn_grid_of_warps(p.n_pieces), &p);
}

const struct qrn_kernel qrn_cuda_cast_rows = {
    .op = QRN_OP_cast,
    .name = "cuda.cast.rows",
    .needs = QRN_CUDA_SM80,
    .run = run_cast,
};

static void run_copy(void *stream, const void *args)
{
    static const struct qrn_cuda_function f = {qrn_cuda_image_cast, "qrn_copy", 0};
    const struct qrn_copy_args *a = args;
    const struct qrn_dtype_info *type = qrn_dtype_info(a->x.dtype);
    struct qrn_copy_params p = {
        .shape = qrn_rows_shape(&a->x), .x = qrn_rows(&a->x), .out = qrn_rows(&a->out)};
    p.shape.d = p.shape.d / type->block_elements * type->block_bytes;
    if (qrn_is_contiguous(&a->x) && qrn_is_contiguous(&a->out))
        p.shape = (struct qrn_rows_shape){{1, 1, 1}, qrn_n_rows(&p.shape) * p.shape.d};
    p.pieces_per_row = (p.shape.d + 15) / 16;
    p.n_pieces = qrn_n_rows(&p.shape) * p.pieces_per_row;
    qrn_cuda_launch(stream, &f, qrn_grid_of_warps((p.n_pieces + 31) / 32), &p);
}

const struct qrn_kernel qrn_cuda_copy_rows = {
    .op = QRN_OP_copy,
    .name = "cuda.copy.rows",
    .needs = QRN_CUDA_SM80,
    .run = run_copy,
};
