/* SPDX-License-Identifier: MIT
 * argmax, top_k, moe_route. */
#include "backends/cuda/ranking_cuda.h"
#include "backends/cuda/rows.h"

QRN_CUDA_IMAGE(ranking);

enum { RANKING_THREADS = 512 };

static void launch_rows(void *stream, const struct qrn_cuda_function *f,
                        const struct qrn_ranking_params *p)
{
    const int64_t most = 1 << 20;
    qrn_cuda_launch(stream, f,
                    (struct qrn_cuda_grid){.n_blocks = p->n_rows < most ? p->n_rows : most,
                                           .n_threads = RANKING_THREADS},
                    p);
}

static struct qrn_ranking_params params_of(const struct qrn_tensor *x, const struct qrn_tensor *ids,
                                           const struct qrn_tensor *values)
{
    return (struct qrn_ranking_params){.x = x->data,
                                       .ids = ids->data,
                                       .values = values->n_dims ? values->data : NULL,
                                       .x_stride = x->stride[0],
                                       .ids_stride = ids->stride[0],
                                       .values_stride = values->stride[0],
                                       .n_rows = x->shape[0],
                                       .n = x->shape[1],
                                       .k = ids->n_dims == 2 ? ids->shape[1] : 1};
}

static void run_argmax(void *stream, const void *args)
{
    static const struct qrn_cuda_function f = {qrn_cuda_image_ranking, "qrn_argmax", 0};
    const struct qrn_argmax_args *a = args;
    const struct qrn_ranking_params p = params_of(&a->x, &a->ids, &a->values);
    launch_rows(stream, &f, &p);
}

const struct qrn_kernel qrn_cuda_argmax_rows = {
    .op = QRN_OP_argmax,
    .name = "cuda.argmax.rows",
    .needs = QRN_CUDA_SM80,
    .run = run_argmax,
};

static size_t top_k_scratch(const void *args, int n_threads)
{
    const struct qrn_top_k_args *a = args;
    (void)n_threads;
    return (size_t)(a->ids.shape[0] * a->ids.shape[1]) * sizeof(int32_t);
}

static void run_top_k(void *stream, const void *args)
{
    static const struct qrn_cuda_function f = {qrn_cuda_image_ranking, "qrn_top_k", 0};
    const struct qrn_top_k_args *a = args;
    struct qrn_ranking_params p = params_of(&a->x, &a->ids, &a->values);
    p.found = (int32_t *)(uintptr_t)((struct qrn_cuda_stream *)stream)->scratch;
    launch_rows(stream, &f, &p);
}

const struct qrn_kernel qrn_cuda_top_k_rows = {
    .op = QRN_OP_top_k,
    .name = "cuda.top_k.rows",
    .needs = QRN_CUDA_SM80,
    .scratch_bytes = top_k_scratch,
    .run = run_top_k,
};

static void run_moe_route(void *stream, const void *args)
{
    static const struct qrn_cuda_function f = {qrn_cuda_image_ranking, "qrn_moe_route", 0};
    const struct qrn_moe_route_args *a = args;
    const struct qrn_moe_route_params p = {.logits = a->logits.data,
                                           .ids = a->ids.data,
                                           .weights = a->weights.data,
                                           .logits_stride = a->logits.stride[0],
                                           .ids_stride = a->ids.stride[0],
                                           .weights_stride = a->weights.stride[0],
                                           .n_tokens = a->logits.shape[0],
                                           .n_experts = a->logits.shape[1],
                                           .k = a->ids.shape[1],
                                           .normalise = a->normalise};
    qrn_cuda_launch(stream, &f, qrn_grid_of_warps(p.n_tokens), &p);
}

const struct qrn_kernel qrn_cuda_moe_route_tokens = {
    .op = QRN_OP_moe_route,
    .name = "cuda.moe_route.tokens",
    .needs = QRN_CUDA_SM80,
    .run = run_moe_route,
};
