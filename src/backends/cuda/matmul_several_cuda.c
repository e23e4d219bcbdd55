/* SPDX-License-Identifier: MIT
 * matmul of bf16 weights in rows with up to 64 rows of activations rounded to bf16, on Hopper. */
#include "backends/cuda/matmul_prepare.h"
#include "backends/cuda/matmul_several_cuda.h"
#include "backends/cuda/matmul_wgmma_cuda.h"
#include "backends/cuda/tensor_map.h"

QRN_CUDA_IMAGE(matmul_several_sm90a);
QRN_CUDA_IMAGE(matmul_x_bf16);

/* ASKED: bytes of a block that the second cache is asked for before the launch before has ended.  FROM_MEMORY,
 * FROM_CACHE: what a byte of weights, and one of weights or x, takes, of a multiprocessor when all read. */
enum {
    MOST_ROWS = 64,
    MOST_SHARED = 220 * 1024,
    ASKED = 128 * 1024,
    FROM_MEMORY = 26,
    FROM_CACHE = 18
};

/* Eight rows of x each, of a warp, which has half of them. */
static int columns_of(const struct qrn_matmul_params *p)
{
    return p->most_rows <= 16 ? 1 : p->most_rows <= 32 ? 2 : QRN_SEVERAL_MOST_COLUMNS;
}

/* Groups of 32 rows of a tile: those that take least, of a multiprocessor that takes most. */
static int groups_of_tile(const struct qrn_matmul_params *p, int n_blocks)
{
    const int64_t n_groups = (p->w.n + QRN_PANEL_ROWS - 1) / QRN_PANEL_ROWS, x = p->most_rows;
    int64_t least = INT64_MAX;
    int best = 1;
    for (int64_t i = 1; i <= QRN_SEVERAL_MOST_GROUPS; i++) {
        const int64_t rows = i * QRN_PANEL_ROWS, n_tiles = (n_groups + i - 1) / i,
                      memory = rows * FROM_MEMORY, cache = (rows + x) * FROM_CACHE,
                      time =
                          (n_tiles + n_blocks - 1) / n_blocks * (memory > cache ? memory : cache);
        if (time > least) continue;
        least = time;
        best = (int)i;
    }
    return best;
}

static struct qrn_tensor_box box_of(uint64_t data, const struct qrn_matmul_params *p,
                                    int64_t n_rows, int64_t row_bytes, int box_rows)
{
    return (struct qrn_tensor_box){.data = (const void *)(uintptr_t)data,
                                   .dtype = QRN_BF16,
                                   .n = p->w.k,
                                   .n_rows = n_rows,
                                   .n_matrices = 1,
                                   .row_bytes = row_bytes,
                                   .box_n = QRN_SEVERAL_BOX_K,
                                   .box_rows = box_rows};
}

static struct qrn_tensor_box box_of_w(const struct qrn_matmul_params *p, int n_groups)
{
    return box_of(p->w.w.data, p, p->w.n, p->w.w.stride[2], n_groups * QRN_PANEL_ROWS);
}

/* x as it lies in memory. */
static struct qrn_tensor_box given_x(const struct qrn_matmul_params *p)
{
    return box_of(p->x.data, p, p->most_rows, qrn_one_stride(&p->shape, &p->x), 16 * columns_of(p));
}

/* Whether x is read where it is. */
static bool takes_x(const struct qrn_matmul_params *p)
{
    const struct qrn_tensor_box box = given_x(p);
    return p->x_dtype == QRN_BF16 && qrn_cuda_can_map(&box);
}

static bool takes(const struct qrn_matmul_params *p, bool ok)
{
    if (!ok || p->w.packed || p->acts != QRN_ACTS_BF16 || p->w.k <= 0) return false;
    if (p->ids || p->n_matrices != 1 || p->most_rows > MOST_ROWS) return false;
    const struct qrn_tensor_box box = box_of_w(p, 1);
    return p->w.n < INT32_MAX / 2 && p->w.k < INT32_MAX / 2 && qrn_cuda_can_map(&box);
}

/* Rows of x in scratch begin at multiples of 16 bytes. */
static int64_t stride_of(const struct qrn_matmul_params *p)
{
    return (p->w.k + 7) / 8 * 8;
}

static size_t scratch(struct qrn_matmul_params *p)
{
    return takes_x(p) ? 0 : (size_t)(p->most_rows * stride_of(p)) * sizeof(uint16_t);
}

/* Where x is as bf16. */
static struct qrn_tensor_box prepare_x(struct qrn_cuda_stream *s,
                                       const struct qrn_matmul_params *job)
{
    static const struct qrn_cuda_function f = {qrn_cuda_image_matmul_x_bf16, "qrn_matmul_x_bf16",
                                               0};
    const struct qrn_matmul_wgmma_params p = {
        .job = *job, .x16 = s->scratch, .n_x16 = job->most_rows, .x16_stride = stride_of(job)};
    if (takes_x(job)) return given_x(job);
    qrn_cuda_launch(s, &f, qrn_grid_of_warps(p.n_x16 * ((p.x16_stride + 255) / 256)), &p);
    return box_of(p.x16, job, job->most_rows, p.x16_stride * (int64_t)sizeof(uint16_t),
                  16 * columns_of(job));
}

static const struct qrn_cuda_function *function_of(int columns)
{
    static const struct qrn_cuda_function of[3] = {
        {qrn_cuda_image_matmul_several_sm90a, "qrn_matmul_several1_bf16", MOST_SHARED},
        {qrn_cuda_image_matmul_several_sm90a, "qrn_matmul_several2_bf16", MOST_SHARED},
        {qrn_cuda_image_matmul_several_sm90a, "qrn_matmul_several4_bf16", MOST_SHARED}};
    return &of[columns / 2];
}

static void run(struct qrn_cuda_stream *s, struct qrn_matmul_params *job)
{
    if (job->most_rows == 0 || job->w.n == 0) return;
    const int n_blocks = s->cuda->n_multiprocessors, n_groups = groups_of_tile(job, n_blocks),
              columns = columns_of(job), rows = n_groups * QRN_PANEL_ROWS,
              slot = qrn_several_slot_bytes(n_groups, 16 * columns);
    int n_slots = (MOST_SHARED - 1024) / slot; /* the ring is aligned to 1024 */
    if (n_slots > QRN_SEVERAL_SLOTS) n_slots = QRN_SEVERAL_SLOTS;
    struct qrn_matmul_several_params p = {.job = *job,
                                          .n_groups = n_groups,
                                          .n_tiles = (int32_t)((job->w.n + rows - 1) / rows),
                                          .n_panels =
                                              (int32_t)((job->w.k + QRN_PANEL_K - 1) / QRN_PANEL_K),
                                          .n_slots = n_slots,
                                          .n_asked = ASKED / (rows * QRN_PANEL_K * 2)};
    const struct qrn_tensor_box x = prepare_x(s, job), w = box_of_w(job, n_groups);
    qrn_cuda_tensor_map(s, &x, &p.x);
    qrn_cuda_tensor_map(s, &w, &p.w);
    qrn_cuda_launch(s, function_of(columns),
                    (struct qrn_cuda_grid){.n_blocks = p.n_tiles < n_blocks ? p.n_tiles : n_blocks,
                                           .n_threads = (unsigned)(32 * (2 * n_groups + 1)),
                                           .shared_bytes = (unsigned)(1024 + n_slots * slot)},
                    &p);
}

static const char serves[] = "bf16 weights in rows, bf16 activations: at most 64 rows of x";

QRN_CUDA_MATMUL_KERNEL_NEEDING(matmul, several, QRN_CUDA_SM90, takes, scratch, run, serves);
