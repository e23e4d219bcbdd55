/* SPDX-License-Identifier: MIT
 * gated_delta_net. */
#include "backends/cuda/gated_delta_net_cuda.h"
#include "backends/cuda/gdn.h"

QRN_CUDA_IMAGE(gated_delta_net);

static struct qrn_gated_delta_net_params params_of(const struct qrn_gated_delta_net_args *a)
{
    struct qrn_gated_delta_net_params p = {.x = qrn_gdn_tokens(&a->q, &a->k, &a->v, &a->g, &a->beta,
                                                               &a->out, &a->seq_begin, a->head_map),
                                           .state_in = a->state_in.data,
                                           .state_out = a->state_out.data,
                                           .scale = a->scale,
                                           .positive = a->gate_sign == QRN_GATE_POSITIVE};
    for (int i = 0; i < 3; i++) {
        p.in_stride[i] = a->state_in.stride[i];
        p.next_stride[i] = a->state_out.stride[i];
    }
    return p;
}

static void run_registers(void *stream, const void *args)
{
    static const struct qrn_cuda_function functions[] = {
        {qrn_cuda_image_gated_delta_net, "qrn_gated_delta_net_32", 0},
        {qrn_cuda_image_gated_delta_net, "qrn_gated_delta_net_64", 0},
        {qrn_cuda_image_gated_delta_net, "qrn_gated_delta_net_128", 0},
        {qrn_cuda_image_gated_delta_net, "qrn_gated_delta_net_256", 0}};
    struct qrn_gated_delta_net_params p = params_of(args);
    int i = 0;
    while (32 << i < p.x.d_k) i++;
    p.n_blocks = (p.x.d_v + QRN_GDN_BLOCK_ROWS - 1) / QRN_GDN_BLOCK_ROWS;
    const struct qrn_cuda_grid grid = {.n_blocks =
                                           p.x.sequences.n_seqs * p.x.heads.n_v * p.n_blocks,
                                       .n_threads = QRN_GDN_BLOCK_THREADS};
    qrn_cuda_launch(stream, &functions[i], grid, &p);
}

static bool registers_support(const void *args)
{
    return ((const struct qrn_gated_delta_net_args *)args)->q.shape[2] <= 256;
}

const struct qrn_kernel qrn_cuda_gated_delta_net_registers = {
    .op = QRN_OP_gated_delta_net,
    .name = "cuda.gated_delta_net.registers",
    .needs = QRN_CUDA_SM80,
    .serves = "d_k up to 256",
    .supports = registers_support,
    .run = run_registers,
};

static void run_any(void *stream, const void *args)
{
    static const struct qrn_cuda_function f = {qrn_cuda_image_gated_delta_net,
                                               "qrn_gated_delta_net_any", 0};
    struct qrn_gated_delta_net_params p = params_of(args);
    p.n_blocks = (p.x.d_v + QRN_WARPS - 1) / QRN_WARPS;
    const struct qrn_cuda_grid grid = {
        .n_blocks = p.x.sequences.n_seqs * p.x.heads.n_v * p.n_blocks, .n_threads = QRN_THREADS};
    qrn_cuda_launch(stream, &f, grid, &p);
}

const struct qrn_kernel qrn_cuda_gated_delta_net_any = {
    .op = QRN_OP_gated_delta_net,
    .name = "cuda.gated_delta_net.any",
    .needs = QRN_CUDA_SM80,
    .run = run_any,
};
