/* SPDX-License-Identifier: MIT
 * matmul and matmul_id of weights in rows, of every type. */
#include "backends/cuda/matmul_prepare.h"

QRN_CUDA_IMAGE(matmul_rows);

/* Others are taken by matmul_bf16_cuda.c and matmul_floats_cuda.c. */
static bool takes(const struct qrn_matmul_params *p, bool ok)
{
    const bool is_plain = qrn_dtype_info((enum qrn_dtype)p->w.dtype)->block_elements == 1;
    return ok && !p->w.packed && p->acts != QRN_ACTS_BF16 && !is_plain;
}

static size_t scratch(struct qrn_matmul_params *p)
{
    return p->acts == QRN_ACTS_Q8 ? qrn_cuda_acts_bytes(p) : 0;
}

static void run(struct qrn_cuda_stream *s, struct qrn_matmul_params *p)
{
    static const struct qrn_cuda_function blocks = {qrn_cuda_image_matmul_rows,
                                                    "qrn_matmul_rows_blocks", 0},
                                          q8 = {qrn_cuda_image_matmul_rows, "qrn_matmul_rows_q8",
                                                0};
    const bool rounds = p->acts == QRN_ACTS_Q8;
    qrn_cuda_cut_rows(p, QRN_MATMUL_ROWS, false);
    if (p->n_tiles == 0 || p->w.n == 0) return;
    if (rounds) qrn_cuda_round_x(s, s->scratch, p);
    qrn_cuda_launch(s, rounds ? &q8 : &blocks, qrn_grid_of_warps(p->n_tiles * p->w.n), p);
}

static const char serves[] = "blocks in rows";

QRN_CUDA_MATMUL_KERNEL(matmul, rows, takes, scratch, run, serves);
QRN_CUDA_MATMUL_KERNEL(matmul_id, rows, takes, scratch, run, serves);
