/* SPDX-License-Identifier: MIT
 * matmul of bf16 weights in rows with up to 64 rows of activations rounded to bf16, on Hopper. */
#include "backends/cuda/matmul_prepare.h"
#include "backends/cuda/matmul_several_cuda.h"
#include "backends/cuda/matmul_maps.h"

QRN_CUDA_IMAGE(matmul_several_sm90a);

/* ASKED: bytes of a block that the second cache is asked for before its turn, where they cannot be copied.  FROM_MEMORY,
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

static bool takes(const struct qrn_matmul_params *p, bool ok)
{
    if (!ok || p->w.packed || p->acts != QRN_ACTS_BF16 || p->w.k <= 0) return false;
    if (p->ids || p->n_matrices != 1 || p->most_rows > MOST_ROWS) return false;
    const struct qrn_tensor_box box = qrn_cuda_box_of_w(p, QRN_SEVERAL_BOX_K, QRN_PANEL_ROWS);
    return p->w.n < INT32_MAX / 2 && p->w.k < INT32_MAX / 2 && qrn_cuda_can_map(&box);
}

static size_t scratch(struct qrn_matmul_params *p)
{
    return qrn_cuda_x16_bytes(p);
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
                                          .n_slots = n_slots};
    const struct qrn_tensor_box w =
        qrn_cuda_box_of_w_once(job, QRN_SEVERAL_BOX_K, QRN_PANEL_ROWS * n_groups);
    if (qrn_cuda_operand_stays(s, "w"))
        p.n_early = n_slots;
    else
        p.n_asked = ASKED / (rows * QRN_PANEL_K * 2);
    qrn_cuda_map_x16(s, job, s->scratch, 16 * columns, &p.x);
    qrn_cuda_tensor_map(s, &w, &p.w);
    qrn_cuda_launch(s, function_of(columns),
                    (struct qrn_cuda_grid){.n_blocks = p.n_tiles < n_blocks ? p.n_tiles : n_blocks,
                                           .n_threads = (unsigned)(32 * (2 * n_groups + 1)),
                                           .shared_bytes = (unsigned)(1024 + n_slots * slot)},
                    &p);
}

static const char serves[] = "bf16 weights in rows, bf16 activations: at most 64 rows of x";

QRN_CUDA_MATMUL_KERNEL_NEEDING(matmul, several, QRN_CUDA_SM90, takes, scratch, run, serves);
