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

static size_t scratch(struct qrn_matmul_params *p)
{
    cut(p);
    return qrn_cuda_slots_bytes(p);
}

static const char serves[] = "bf16 weights in rows, bf16 activations";

QRN_CUDA_MATMUL_KERNEL(matmul, bf16, takes, scratch, run, serves);
QRN_CUDA_MATMUL_KERNEL(matmul_id, bf16, takes, scratch, run, serves);
