/* SPDX-License-Identifier: MIT
 * gdn_gates. */
#include "backends/cuda/op_params.h"
#include "backends/cuda/rows.h"

QRN_CUDA_IMAGE(gdn_gates);

struct qrn_gdn_gates_params qrn_cuda_gdn_gates_params(const struct qrn_gdn_gates_args *a)
{
    return (struct qrn_gdn_gates_params){.a = a->a.data,
                                         .b = a->b.data,
                                         .a_scale = a->a_scale.data,
                                         .dt_bias = a->dt_bias.data,
                                         .g = a->g.data,
                                         .beta = a->beta.data,
                                         .a_stride = a->a.stride[0],
                                         .b_stride = a->b.stride[0],
                                         .g_stride = a->g.stride[0],
                                         .beta_stride = a->beta.stride[0],
                                         .n_tokens = a->a.shape[0],
                                         .n_heads = a->a.shape[1]};
}

static void run(void *stream, const void *args)
{
    static const struct qrn_cuda_function f = {qrn_cuda_image_gdn_gates, "qrn_gdn_gates", 0};
    const struct qrn_gdn_gates_params p = qrn_cuda_gdn_gates_params(args);
    qrn_cuda_launch(stream, &f, qrn_grid_of_warps((p.n_tokens * p.n_heads + 31) / 32), &p);
}

const struct qrn_kernel qrn_cuda_gdn_gates_elements = {
    .op = QRN_OP_gdn_gates,
    .name = "cuda.gdn_gates.elements",
    .needs = QRN_CUDA_SM80,
    .run = run,
};
