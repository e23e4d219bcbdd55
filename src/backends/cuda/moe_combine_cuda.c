/* SPDX-License-Identifier: MIT
 * moe_combine. */
#include "backends/cuda/op_params.h"
#include "backends/cuda/rows.h"

QRN_CUDA_IMAGE(moe_combine);

struct qrn_moe_combine_params qrn_cuda_moe_combine_params(const struct qrn_moe_combine_args *a)
{
    return (struct qrn_moe_combine_params){.experts = a->experts.data,
                                           .weights = a->weights.data,
                                           .shared = a->shared.n_dims ? a->shared.data : NULL,
                                           .gate =
                                               a->shared_gate.n_dims ? a->shared_gate.data : NULL,
                                           .out = a->out.data,
                                           .experts_token = a->experts.stride[0],
                                           .experts_rank = a->experts.stride[1],
                                           .weights_stride = a->weights.stride[0],
                                           .shared_stride = a->shared.stride[0],
                                           .gate_stride = a->shared_gate.stride[0],
                                           .out_stride = a->out.stride[0],
                                           .n_tokens = a->experts.shape[0],
                                           .k = a->experts.shape[1],
                                           .d = a->experts.shape[2]};
}

static void run(void *stream, const void *args)
{
    static const struct qrn_cuda_function f = {qrn_cuda_image_moe_combine, "qrn_moe_combine", 0};
    const struct qrn_moe_combine_params p = qrn_cuda_moe_combine_params(args);
    qrn_cuda_launch(stream, &f, qrn_grid_of_warps(p.n_tokens * ((p.d + QRN_PIECE - 1) / QRN_PIECE)),
                    &p);
}

const struct qrn_kernel qrn_cuda_moe_combine_rows = {
    .op = QRN_OP_moe_combine,
    .name = "cuda.moe_combine.rows",
    .needs = QRN_CUDA_SM80,
    .run = run,
};
