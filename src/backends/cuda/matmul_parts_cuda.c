/* SPDX-License-Identifier: MIT
 * matmul of few long rows of bf16 weights with 33 to 64 rows of activations rounded to bf16, on Hopper: k is cut in
 * parts, so that all multiprocessors have one. */
#include "backends/cuda/matmul_parts.h"

#include "backends/cuda/matmul_parts_cuda.h"
#include "backends/cuda/matmul_prepare.h"
#include "backends/cuda/matmul_maps.h"

QRN_CUDA_IMAGE(matmul_parts_sm90a);

/* LEAST_X: fewer rows of x are others' (matmul_several_cuda.c).  MOST_WEIGHTS rows of weights, of LEAST_K and more.
 * MOST_TILES: parts of all tiles, for which there is scratch. */
enum {
    LEAST_X = 33,
    LEAST_K = 2048,
    MOST_WEIGHTS = 8448,
    MOST_TILES = 144,
    MOST_PARTS = 16,
    SHARED = 1024 + QRN_PARTS_STAGES * QRN_PARTS_STAGE /* the ring is aligned to 1024 */
};

static bool takes(const struct qrn_matmul_params *p, bool ok)
{
    if (!ok || p->w.packed || p->acts != QRN_ACTS_BF16 || !p->any_order || p->ids) return false;
    if (p->n_matrices != 1 || p->most_rows < LEAST_X || p->most_rows > QRN_PARTS_X) return false;
    const struct qrn_tensor_box box = qrn_cuda_box_of_w(p, QRN_PARTS_K, QRN_PARTS_WEIGHTS);
    return p->w.n > 0 && p->w.n <= MOST_WEIGHTS && p->w.k >= LEAST_K && p->w.k < INT32_MAX / 2 &&
           qrn_cuda_can_map(&box);
}

static size_t whole(size_t n_bytes)
{
    return (n_bytes + 127) / 128 * 128;
}

static size_t scratch(struct qrn_matmul_params *p)
{
    const size_t tile = sizeof(float) * QRN_PARTS_WEIGHTS * QRN_PARTS_X;
    return whole(qrn_cuda_x16_bytes(p)) + MOST_TILES * tile;
}

/* Parts of each tile, so that all of them are one round. */
static int32_t parts_of(const struct qrn_matmul_params *p, int64_t n_steps, int64_t n_blocks)
{
    const int64_t n_tiles = (p->w.n + QRN_PARTS_WEIGHTS - 1) / QRN_PARTS_WEIGHTS;
    int64_t n = (n_blocks < MOST_TILES ? n_blocks : MOST_TILES) / n_tiles;
    if (n > MOST_PARTS) n = MOST_PARTS;
    if (n > n_steps) n = n_steps;
    return n > 1 ? (int32_t)n : 1;
}

static struct qrn_matmul_parts_params queue(struct qrn_cuda_stream *s,
                                            const struct qrn_matmul_params *job, bool weights_stay,
                                            bool lets_next)
{
    static const struct qrn_cuda_function f = {qrn_cuda_image_matmul_parts_sm90a,
                                               "qrn_matmul_parts_bf16", SHARED};
    const int64_t n_tiles = (job->w.n + QRN_PARTS_WEIGHTS - 1) / QRN_PARTS_WEIGHTS,
                  n_steps = (job->w.k + QRN_PARTS_K - 1) / QRN_PARTS_K;
    struct qrn_matmul_parts_params p = {.job = *job,
                                        .sums = s->scratch + whole(qrn_cuda_x16_bytes(job)),
                                        .apart = job->most_rows * job->w.n,
                                        .n_parts =
                                            parts_of(job, n_steps, s->cuda->n_multiprocessors),
                                        .n_steps = (int32_t)n_steps,
                                        .n_early = weights_stay ? QRN_PARTS_STAGES : 0,
                                        .lets_next = lets_next};
    const struct qrn_tensor_box w = qrn_cuda_box_of_w_once(job, QRN_PARTS_K, QRN_PARTS_WEIGHTS);
    qrn_cuda_map_x16(s, job, s->scratch, QRN_PARTS_X, &p.x);
    qrn_cuda_tensor_map(s, &w, &p.w);
    qrn_cuda_launch(s, &f,
                    (struct qrn_cuda_grid){.n_blocks = n_tiles * p.n_parts,
                                           .n_threads = QRN_PARTS_THREADS,
                                           .shared_bytes = SHARED,
                                           .lets_next = lets_next},
                    &p);
    return p;
}

struct qrn_cuda_parts qrn_cuda_queue_parts(struct qrn_cuda_stream *s,
                                           const struct qrn_matmul_args *args, bool weights_stay)
{
    struct qrn_matmul_params job;
    (void)qrn_cuda_matmul_job(args, &job);
    const struct qrn_matmul_parts_params p = queue(s, &job, weights_stay, true);
    return (struct qrn_cuda_parts){
        .sums = p.sums, .apart = p.apart, .n = p.n_parts, .lets_next = true};
}

static void run(struct qrn_cuda_stream *s, struct qrn_matmul_params *job)
{
    static const struct qrn_cuda_function add = {qrn_cuda_image_matmul_parts_sm90a,
                                                 "qrn_matmul_parts_add", 0};
    const struct qrn_matmul_parts_params p = queue(s, job, qrn_cuda_operand_stays(s, "w"), false);
    qrn_cuda_launch(s, &add,
                    (struct qrn_cuda_grid){.n_blocks = (job->w.n + 255) / 256,
                                           .n_blocks_y = (unsigned)job->most_rows,
                                           .n_threads = 256},
                    &p);
}

static const char serves[] = "bf16 weights in up to 8448 rows of 2048 and more, bf16 activations: "
                             "33 to 64 rows of x in any order";

QRN_CUDA_MATMUL_KERNEL_NEEDING(matmul, parts, QRN_CUDA_SM90, takes, scratch, run, serves);
