/* SPDX-License-Identifier: MIT
 * matmul and matmul_id of bf16 weights with activations rounded to bf16. */
#include "backends/cuda/matmul_prepare.h"

QRN_CUDA_IMAGE(matmul_bf16);

enum {
    WARPS = 8,
    SHARED = WARPS * (32 * 256 + 32 * 36 * 4) /* struct warp_memory */
};

static bool takes(const struct qrn_matmul_params *p, bool ok)
{
    return ok && !p->w.packed && p->acts == QRN_ACTS_BF16;
}

/* Few slots are taken one by one: a matrix that two of them name is then read twice. */
static void cut(struct qrn_matmul_params *p)
{
    qrn_cuda_cut_rows(p, 32, p->n_slots > 32);
}

static void run(struct qrn_cuda_stream *s, struct qrn_matmul_params *p)
{
    static const struct qrn_cuda_function f = {qrn_cuda_image_matmul_bf16, "qrn_matmul_bf16",
                                               SHARED};
    cut(p);
    if (p->n_tiles == 0 || p->w.n == 0) return;
    qrn_cuda_sort_slots(s, s->scratch, p);
    qrn_cuda_launch(s, &f,
                    (struct qrn_cuda_grid){.n_blocks = (p->w.n + 31) / 32 * p->n_tiles,
                                           .n_threads = 32 * WARPS,
                                           .shared_bytes = SHARED},
                    p);
}

static bool matmul_supports(const void *args)
{
    struct qrn_matmul_params p;
    return takes(&p, qrn_cuda_matmul_job(args, &p));
}

static void matmul_run(void *stream, const void *args)
{
    struct qrn_matmul_params p;
    (void)qrn_cuda_matmul_job(args, &p);
    run(stream, &p);
}

const struct qrn_kernel qrn_cuda_matmul_bf16 = {
    .op = QRN_OP_matmul,
    .name = "cuda.matmul.bf16",
    .needs = QRN_CUDA_SM80,
    .serves = "bf16 weights in rows, bf16 activations",
    .supports = matmul_supports,
    .run = matmul_run,
};

static bool matmul_id_supports(const void *args)
{
    struct qrn_matmul_params p;
    return takes(&p, qrn_cuda_matmul_id_job(args, &p));
}

static size_t matmul_id_scratch(const void *args, int n_threads)
{
    struct qrn_matmul_params p;
    (void)n_threads;
    (void)qrn_cuda_matmul_id_job(args, &p);
    cut(&p);
    return qrn_cuda_slots_bytes(&p);
}

static void matmul_id_run(void *stream, const void *args)
{
    struct qrn_matmul_params p;
    (void)qrn_cuda_matmul_id_job(args, &p);
    run(stream, &p);
}

const struct qrn_kernel qrn_cuda_matmul_id_bf16 = {
    .op = QRN_OP_matmul_id,
    .name = "cuda.matmul_id.bf16",
    .needs = QRN_CUDA_SM80,
    .serves = "bf16 weights in rows, bf16 activations",
    .supports = matmul_id_supports,
    .scratch_bytes = matmul_id_scratch,
    .run = matmul_id_run,
};
