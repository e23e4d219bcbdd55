/* SPDX-License-Identifier: MIT
 * matmul of bf16 weights in rows with few rows of activations rounded to bf16, on Hopper. */
#include "backends/cuda/matmul_few_cuda.h"
#include "backends/cuda/matmul_prepare.h"
#include "backends/cuda/matmul_maps.h"

QRN_CUDA_IMAGE(matmul_few_sm90a);

/* ASKED: bytes of a block that the second cache is asked for before the launch before has ended. */
enum { LEAST_SLOTS = 8, ASKED = 64 * 1024 };

/* Rows of a group; what a block has in shared memory. */
struct cut {
    int rows, n_slots;
    int64_t shared_bytes;
};

static int64_t panels_of(const struct qrn_matmul_params *p)
{
    return (p->w.k + QRN_PANEL_K - 1) / QRN_PANEL_K;
}

static int64_t groups_of(const struct qrn_matmul_params *p, int rows)
{
    return (p->w.n + rows - 1) / rows;
}

static bool fits(const struct qrn_matmul_params *p, int rows, int64_t shared, struct cut *out)
{
    const int64_t of_x = panels_of(p) * p->most_rows * QRN_FEW_X,
                  slot = qrn_few_panel_bytes(rows) +
                         p->most_rows * QRN_FEW_P * (int64_t)sizeof(float), /* and sums */
        rest = of_x + 1024; /* the ring is aligned to that */
    int64_t n = (shared - rest) / slot;
    if (n > QRN_FEW_SLOTS) n = QRN_FEW_SLOTS;
    *out = (struct cut){rows, (int)n, rest + n * slot};
    return n >= LEAST_SLOTS;
}

static bool find_cut(const struct qrn_matmul_params *p, int rows, struct cut *out)
{
    return fits(p, rows, QRN_FEW_HALF_SHARED, out) || fits(p, rows, QRN_FEW_MOST_SHARED, out);
}

/* Half as many rows where a quarter of all blocks would have none. */
static int choose_rows(const struct qrn_matmul_params *p, int n_blocks)
{
    return 4 * groups_of(p, 32) < 3 * (int64_t)n_blocks ? 16 : 32;
}

static bool takes(const struct qrn_matmul_params *p, bool ok)
{
    if (!ok || p->w.packed || p->acts != QRN_ACTS_BF16 || p->w.k <= 0) return false;
    if (p->ids || p->n_matrices != 1 || p->most_rows > QRN_FEW_COLUMNS) return false;
    struct cut cut;
    const struct qrn_tensor_box box = qrn_cuda_box_of_w(p, QRN_FEW_BOX_K, 32);
    return groups_of(p, 16) <= INT32_MAX / 2 / panels_of(p) && qrn_cuda_can_map(&box) &&
           find_cut(p, 32, &cut);
}

/* Bytes from a row of x to the next where all are whole fours of elements, aligned; else 0. */
static int64_t stride_of_fours(const struct qrn_matmul_params *p)
{
    const int64_t four = p->x_dtype == QRN_BF16 ? 8 : 16,
                  stride = p->most_rows > 1 ? qrn_one_stride(&p->shape, &p->x) : four;
    const bool whole = p->w.k % 4 == 0 && p->x.data % (uint64_t)four == 0 && stride % four == 0;
    return whole ? stride : 0;
}

/* So that there is a place to hand sums over. */
static size_t scratch(struct qrn_matmul_params *p)
{
    (void)p;
    return 16;
}

static void run(struct qrn_cuda_stream *s, struct qrn_matmul_params *job)
{
    static const struct qrn_cuda_function f16 = {qrn_cuda_image_matmul_few_sm90a,
                                                 "qrn_matmul_few16_bf16", QRN_FEW_MOST_SHARED},
                                          f32 = {qrn_cuda_image_matmul_few_sm90a,
                                                 "qrn_matmul_few32_bf16", QRN_FEW_MOST_SHARED};
    const int rows = choose_rows(job, s->cuda->n_multiprocessors);
    struct cut cut;
    if (job->most_rows == 0 || job->w.n == 0 || !find_cut(job, rows, &cut)) return;
    const bool stays = qrn_cuda_operand_stays(s, "w");
    const int64_t n_groups = groups_of(job, rows), n = s->cuda->n_multiprocessors,
                  n_blocks = n_groups < n ? n_groups : n, n_panels = n_groups * panels_of(job),
                  shared_bytes = cut.shared_bytes < QRN_FEW_ALONE_SHARED ? QRN_FEW_ALONE_SHARED
                                                                         : cut.shared_bytes;
    struct qrn_matmul_few_params p = {.job = *job,
                                      .handover = s->cuda->handover,
                                      .x_stride = stride_of_fours(job),
                                      .share = (int32_t)(n_panels / n_blocks),
                                      .n_longer = (int32_t)(n_panels % n_blocks),
                                      .n_panels = (int32_t)panels_of(job),
                                      .n_rows = (int32_t)job->most_rows,
                                      .n_slots = cut.n_slots,
                                      .n_early = stays ? cut.n_slots : 0,
                                      .n_asked = ASKED / qrn_few_panel_bytes(rows)};
    const struct qrn_tensor_box box = qrn_cuda_box_of_w_once(job, QRN_FEW_BOX_K, cut.rows);
    qrn_cuda_tensor_map(s, &box, &p.w);
    qrn_cuda_launch(s, rows == 16 ? &f16 : &f32,
                    (struct qrn_cuda_grid){.n_blocks = n_blocks,
                                           .n_threads = QRN_FEW_THREADS,
                                           .shared_bytes = (unsigned)shared_bytes},
                    &p);
}

static const char serves[] = "bf16 weights in rows, bf16 activations: at most 8 rows of x";

QRN_CUDA_MATMUL_KERNEL_NEEDING(matmul, few, QRN_CUDA_SM90, takes, scratch, run, serves);
