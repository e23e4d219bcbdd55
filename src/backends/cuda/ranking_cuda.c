/* SPDX-License-Identifier: MIT
 * argmax, top_k, moe_route. */
#include "backends/cuda/op_params.h"
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

/* As many blocks a row as leave each thread four elements, if rows are few. */
static int64_t argmax_parts(int64_t n_rows, int64_t n)
{
    const int64_t most = 256, useful = (n + 4 * RANKING_THREADS - 1) / (4 * RANKING_THREADS);
    const int64_t parts = n_rows > 0 && n_rows < most ? most / n_rows : 1;
    return parts < useful ? parts : useful;
}

static size_t argmax_scratch(const void *args, int n_threads)
{
    const struct qrn_argmax_args *a = args;
    (void)n_threads;
    const int64_t parts = argmax_parts(a->x.shape[0], a->x.shape[1]);
    return parts > 1 ? (size_t)(parts * a->x.shape[0]) * sizeof(uint64_t) : 0;
}

static void run_argmax(void *stream, const void *args)
{
    static const struct qrn_cuda_function parts = {qrn_cuda_image_ranking, "qrn_argmax", 0},
                                          of_parts = {qrn_cuda_image_ranking, "qrn_argmax_of_parts",
                                                      0};
    const struct qrn_argmax_args *a = args;
    const int64_t most = 1 << 20;
    struct qrn_ranking_params p = params_of(&a->x, &a->ids, &a->values);
    p.n_parts = argmax_parts(p.n_rows, p.n);
    p.firsts = (unsigned long long *)(uintptr_t)((struct qrn_cuda_stream *)stream)->scratch;
    const int64_t blocks = p.n_rows * p.n_parts;
    qrn_cuda_launch(stream, &parts,
                    (struct qrn_cuda_grid){.n_blocks = blocks < most ? blocks : most,
                                           .n_threads = RANKING_THREADS},
                    &p);
    if (p.n_parts > 1)
        qrn_cuda_launch(stream, &of_parts,
                        (struct qrn_cuda_grid){.n_blocks = p.n_rows, .n_threads = 32}, &p);
}

const struct qrn_kernel qrn_cuda_argmax_rows = {
    .op = QRN_OP_argmax,
    .name = "cuda.argmax.rows",
    .needs = QRN_CUDA_SM80,
    .scratch_bytes = argmax_scratch,
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

struct qrn_moe_route_params qrn_cuda_moe_route_params(const struct qrn_moe_route_args *a)
{
    return (struct qrn_moe_route_params){.logits = a->logits.data,
                                         .ids = a->ids.data,
                                         .weights = a->weights.data,
                                         .logits_stride = a->logits.stride[0],
                                         .ids_stride = a->ids.stride[0],
                                         .weights_stride = a->weights.stride[0],
                                         .n_tokens = a->logits.shape[0],
                                         .n_experts = a->logits.shape[1],
                                         .k = a->ids.shape[1],
                                         .normalise = a->normalise};
}

static void run_moe_route(void *stream, const void *args)
{
    static const struct qrn_cuda_function f = {qrn_cuda_image_ranking, "qrn_moe_route", 0};
    const struct qrn_moe_route_params p = qrn_cuda_moe_route_params(args);
    qrn_cuda_launch(stream, &f, qrn_grid_of_warps(p.n_tokens), &p);
}

const struct qrn_kernel qrn_cuda_moe_route_tokens = {
    .op = QRN_OP_moe_route,
    .name = "cuda.moe_route.tokens",
    .needs = QRN_CUDA_SM80,
    .run = run_moe_route,
};
