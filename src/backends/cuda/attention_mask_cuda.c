/* SPDX-License-Identifier: MIT
 * attention_mask. */
#include "backends/cuda/attention_mask_cuda.h"
#include "backends/cuda/rows.h"

QRN_CUDA_IMAGE(attention_mask);

static void run(void *stream, const void *args)
{
    static const struct qrn_cuda_function f = {qrn_cuda_image_attention_mask, "qrn_attention_mask",
                                               0};
    const struct qrn_attention_mask_args *a = args;
    struct qrn_attention_mask_params p = {
        .shape = qrn_rows_shape(&a->out),
        .out = qrn_rows(&a->out),
        .q_offset = a->q_offset,
        .window = a->window,
        .dtype = (int32_t)a->out.dtype,
        .causal = a->causal,
    };
    p.pieces_per_row = qrn_pieces_per_row(&p.shape);
    p.n_pieces = qrn_n_rows(&p.shape) * p.pieces_per_row;
    qrn_cuda_launch(stream, &f, qrn_grid_of_warps(p.n_pieces), &p);
}

const struct qrn_kernel qrn_cuda_attention_mask_rows = {
    .op = QRN_OP_attention_mask,
    .name = "cuda.attention_mask.rows",
    .needs = QRN_CUDA_SM80,
    .run = run,
};
