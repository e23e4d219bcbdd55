/* SPDX-License-Identifier: MIT
 * matmul of many rows of bf16 weights with up to 64 rows of activations rounded to bf16, in any order, on Hopper: tiles
 * of all k, as many rows as leave a round of multiprocessors full. */
#include "backends/cuda/matmul_whole.h"

#include "backends/cuda/matmul_maps.h"
#include "backends/cuda/matmul_prepare.h"
#include "backends/cuda/matmul_whole_cuda.h"

QRN_CUDA_IMAGE(matmul_whole_sm90a);

/* LEAST_WEIGHTS: fewer rows are others' (matmul_parts_cuda.c, matmul_several_cuda.c).  FROM_MEMORY, FROM_CACHE: what a byte of
 * weights, and one of weights or x, takes, of a multiprocessor when all read. */
enum { LEAST_WEIGHTS = 8449, FROM_MEMORY = 26, FROM_CACHE = 18 };

#define WHOLE(N, N_GROUPS)                                                          \
    {                                                                               \
        N *N_GROUPS, N, N_GROUPS,                                                   \
        {                                                                           \
            qrn_cuda_image_matmul_whole_sm90a, "qrn_matmul_whole" #N "x" #N_GROUPS, \
                QRN_WHOLE_MOST_SHARED                                               \
        }                                                                           \
    }
static const struct form {
    int rows, n, n_groups; /* of weights, of a tile */
    struct qrn_cuda_function function;
} forms[] = {WHOLE(64, 1), WHOLE(96, 1), WHOLE(64, 2), WHOLE(96, 2)};

static bool takes(const struct qrn_matmul_params *p, bool ok)
{
    if (!ok || p->w.packed || p->acts != QRN_ACTS_BF16 || !p->any_order || p->ids) return false;
    if (p->n_matrices != 1 || p->most_rows > QRN_WHOLE_X || p->w.n < LEAST_WEIGHTS) return false;
    const struct qrn_tensor_box box = qrn_cuda_box_of_w(p, QRN_WHOLE_K, forms[0].n / 2);
    return p->w.k > 0 && p->w.k < INT32_MAX / 2 && p->w.n < INT32_MAX / 2 && qrn_cuda_can_map(&box);
}

static size_t scratch(struct qrn_matmul_params *p)
{
    return qrn_cuda_x16_bytes(p);
}

static int64_t half_of(const struct qrn_matmul_params *p)
{
    return qrn_ceil_div(p->w.n, 2);
}

/* Tiles that take least, of a multiprocessor that takes most. */
static const struct form *choose_form(const struct qrn_matmul_params *p, int n_blocks)
{
    int64_t least = INT64_MAX;
    const struct form *best = NULL;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        const int64_t rows = forms[i].rows, n_tiles = qrn_ceil_div(half_of(p), rows / 2),
                      memory = rows * FROM_MEMORY, cache = (rows + p->most_rows) * FROM_CACHE,
                      time = qrn_ceil_div(n_tiles, n_blocks) * (memory > cache ? memory : cache);
        if (time > least) continue;
        least = time;
        best = &forms[i];
    }
    return best;
}

static bool is_paired(const struct qrn_rows *rows, size_t element)
{
    const int64_t *stride = rows->stride;
    return (rows->data | (uint64_t)stride[0] | (uint64_t)stride[1] | (uint64_t)stride[2]) %
               (2 * element) ==
           0;
}

static void queue(struct qrn_cuda_stream *s, const struct qrn_matmul_params *job,
                  const struct qrn_silu_mul_args *silu, bool weights_stay)
{
    const int n_blocks = s->cuda->n_multiprocessors;
    const struct form *form = choose_form(job, n_blocks);
    const int n_ring = qrn_whole_steps(form->rows);
    struct qrn_matmul_whole_params p = {
        .job = *job,
        .half = half_of(job),
        .is_paired = is_paired(&job->out, sizeof(float)) && half_of(job) % 2 == 0,
        .n_tiles = (int32_t)qrn_ceil_div(half_of(job), form->rows / 2),
        .n_steps = (int32_t)qrn_ceil_div(job->w.k, QRN_WHOLE_K),
        .n_early = weights_stay ? n_ring : 0,
        .x_rows = (int32_t)qrn_ceil_div(job->most_rows, 8) * 8,
        .lets_next = !silu};
    const struct qrn_tensor_box w = qrn_cuda_box_of_w_once(job, QRN_WHOLE_K, form->n / 2);
    if (job->most_rows == 0) return;
    if (silu) {
        p.shape = qrn_rows_shape(&silu->out);
        p.middle = qrn_rows(&silu->out);
        p.middle_is_bf16 = silu->out.dtype == QRN_BF16;
        p.drops_out = silu->drops_inputs;
        p.is_paired &= is_paired(&p.middle, p.middle_is_bf16 ? sizeof(uint16_t) : sizeof(float));
    }
    qrn_cuda_map_x16(s, job, s->scratch, p.x_rows, &p.x);
    qrn_cuda_tensor_map(s, &w, &p.w);
    qrn_cuda_launch(
        s, &form->function,
        (struct qrn_cuda_grid){.n_blocks = p.n_tiles < n_blocks ? p.n_tiles : n_blocks,
                               .n_threads = (unsigned)qrn_whole_threads(form->n_groups),
                               .shared_bytes =
                                   (unsigned)(1024 + n_ring * qrn_whole_step_bytes(form->rows)),
                               .lets_next = p.lets_next},
        &p);
}

static void run(struct qrn_cuda_stream *s, struct qrn_matmul_params *job)
{
    queue(s, job, NULL, qrn_cuda_operand_stays(s, "w"));
}

void qrn_cuda_whole_silu(struct qrn_cuda_stream *s, const struct qrn_matmul_args *product,
                         const struct qrn_silu_mul_args *silu, bool weights_stay)
{
    struct qrn_matmul_params job;
    (void)qrn_cuda_matmul_job(product, &job);
    queue(s, &job, silu, weights_stay);
}

static const char serves[] =
    "bf16 weights in 8449 rows and more, bf16 activations: at most 64 rows of x in any order";

QRN_CUDA_MATMUL_KERNEL_NEEDING(matmul, whole, QRN_CUDA_SM90, takes, scratch, run, serves);
