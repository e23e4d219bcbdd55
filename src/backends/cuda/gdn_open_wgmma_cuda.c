/* SPDX-License-Identifier: MIT
 * gdn_open_chunk on Hopper's tensor cores. */
#include "backends/cuda/gdn.h"
#include "backends/cuda/gdn_wgmma_cuda.h"
#include "backends/cuda/tensor_map.h"

QRN_CUDA_IMAGE(gdn_open_join_sm90a);
QRN_CUDA_IMAGE(gdn_open_prepare_sm90a);
QRN_CUDA_IMAGE(gdn_open_wgmma_sm90a);

enum {
    CHUNK = QRN_CUDA_GDN_CHUNK,
    WIDTH = QRN_GDN_WGMMA_WIDTH,
    MOST_PIECES = 60000,
    MOST_PARTS = 64,         /* but the last ones, of all sequences' heads */
    MOST_OF_A_SEQUENCE = 16, /* they are joined one by one */
    PART_CHUNKS = 16         /* fewer are not worth it */
};

_Static_assert(sizeof(struct qrn_gdn_piece) % 16 == 0, "for bulk copies");

/* What a call needs beside its tensors: pieces of so many key heads at a time that they stay
 * below a gigabyte, and f32 tensors rounded. */
struct plan {
    int64_t n_numbers, n_k_heads, n_launches;
    size_t pieces_bytes, parts_bytes, open_bytes, q_bytes, v_bytes;
};

/* Of a sequence. */
static int64_t most_parts(const struct qrn_gdn_open_chunk_args *a)
{
    return a->q.shape[0] / CHUNK / a->position.shape[0] / PART_CHUNKS;
}

static struct plan plan_of(const struct qrn_gdn_open_chunk_args *a)
{
    const int64_t n_tokens = a->q.shape[0], n_k_heads = a->q.shape[1], n_v_heads = a->v.shape[1];
    struct plan p = {.n_numbers = n_tokens / CHUNK + 2 * a->position.shape[0]};
    const int64_t ratio = n_v_heads / n_k_heads;
    const int64_t fitting = MOST_PIECES / (p.n_numbers * ratio + 1) + 1;
    p.n_launches = (n_k_heads + fitting - 1) / fitting;
    p.n_k_heads = (n_k_heads + p.n_launches - 1) / p.n_launches;
    p.pieces_bytes = (size_t)(p.n_numbers * p.n_k_heads * ratio) * sizeof(struct qrn_gdn_piece);
    p.pieces_bytes = (p.pieces_bytes + 255) / 256 * 256;
    if (most_parts(a) > 1) p.parts_bytes = MOST_PARTS * sizeof(struct qrn_gdn_part);
    p.open_bytes = (size_t)(a->position.shape[0] * p.n_k_heads) * 2 * QRN_GDN_WGMMA_SQUARE;
    if (a->q.dtype == QRN_BF16) return p;
    p.q_bytes = (size_t)(n_tokens * n_k_heads * WIDTH) * 2;
    p.v_bytes = (size_t)(n_tokens * n_v_heads * WIDTH) * 2;
    return p;
}

static size_t scratch(const void *args, int n_threads)
{
    const struct plan p = plan_of(args);
    (void)n_threads;
    return p.pieces_bytes + p.parts_bytes + p.open_bytes + 2 * p.q_bytes + p.v_bytes;
}

/* A tensor [n_tokens, n_heads, 128] of bf16 by boxes of 64 tokens and columns. */
static struct qrn_tensor_box box_of(const struct qrn_tensor *t)
{
    return (struct qrn_tensor_box){.data = t->data,
                                   .dtype = QRN_BF16,
                                   .n = WIDTH,
                                   .n_rows = t->shape[0],
                                   .n_matrices = t->shape[1],
                                   .row_bytes = t->stride[0] * 2,
                                   .matrix_bytes = t->stride[1] * 2,
                                   .box_n = 64,
                                   .box_rows = CHUNK};
}

static bool can_map(const struct qrn_tensor *t)
{
    const struct qrn_tensor_box box = box_of(t);
    return box.matrix_bytes > 0 && qrn_cuda_can_map(&box);
}

static bool supports(const void *args)
{
    const struct qrn_gdn_open_chunk_args *a = args;
    if (a->acts != QRN_ACT_BF16 || a->q.shape[2] != WIDTH || a->v.shape[2] != WIDTH) return false;
    if (a->q.shape[0] < 1 || a->q.shape[0] > INT32_MAX / 2) return false;
    if (a->q.dtype == QRN_F32) return a->q.shape[0] > 4 * a->position.shape[0];
    return can_map(&a->q) && can_map(&a->k) && can_map(&a->v) && (uintptr_t)a->out.data % 16 == 0 &&
           a->out.stride[0] % 8 == 0 && a->out.stride[1] % 8 == 0;
}

/* t rounded to bf16 at `to`, which it then is. */
static void round_to(struct qrn_cuda_stream *s, struct qrn_tensor *t, CUdeviceptr to)
{
    static const struct qrn_cuda_function f = {qrn_cuda_image_gdn_open_prepare_sm90a,
                                               "qrn_gdn_open_round", 0};
    const struct qrn_gdn_round_params p = {.from = qrn_gdn_tensor(t),
                                           .to = (uint32_t *)(uintptr_t)to,
                                           .n_tokens = t->shape[0],
                                           .n_heads = t->shape[1]};
    const int64_t a_block = QRN_THREADS / 32 * QRN_GDN_ROUND_ROWS,
                  n_blocks = (t->shape[0] * t->shape[1] + a_block - 1) / a_block,
                  most = (int64_t)s->cuda->n_multiprocessors * 4;
    qrn_cuda_launch(s, &f,
                    (struct qrn_cuda_grid){.n_blocks = n_blocks < most ? n_blocks : most,
                                           .n_threads = QRN_THREADS},
                    &p);
    t->data = (void *)(uintptr_t)to;
    t->stride[0] = t->shape[1] * WIDTH;
    t->stride[1] = WIDTH;
}

static CUdeviceptr open_keys_of(const struct qrn_cuda_stream *s, const struct plan *plan)
{
    return s->scratch + plan->pieces_bytes + plan->parts_bytes;
}

static CUdeviceptr rounded_of(const struct qrn_cuda_stream *s, const struct plan *plan)
{
    return open_keys_of(s, plan) + plan->open_bytes;
}

/* x: q, k, v of bf16. */
static struct qrn_gdn_wgmma_params params_of(struct qrn_cuda_stream *s,
                                             const struct qrn_gdn_open_chunk_args *a,
                                             const struct plan *plan, const struct qrn_tensor *x)
{
    struct qrn_gdn_wgmma_params p = {
        .c = qrn_gdn_open_chunk_params(a, WIDTH),
        .pieces = (struct qrn_gdn_piece *)(uintptr_t)s->scratch,
        .parts = (struct qrn_gdn_part *)(uintptr_t)(s->scratch + plan->pieces_bytes),
        .open_keys = (uint8_t *)(uintptr_t)open_keys_of(s, plan),
        .ratio = (int32_t)(a->v.shape[1] / a->q.shape[1]),
        .n_parts = (int32_t)most_parts(a),
        .n_numbers = plan->n_numbers,
        .out_is_bf16 = a->out.dtype == QRN_BF16,
        .out_is_aligned = (uintptr_t)a->out.data % 16 == 0 && a->out.stride[0] % 4 == 0 &&
                          a->out.stride[1] % 4 == 0};
    p.c.keeps_later = 1;
    const struct qrn_tensor_box boxes[] = {box_of(&x[0]), box_of(&x[1]), box_of(&x[2])};
    qrn_cuda_tensor_map(s, &boxes[0], &p.q);
    qrn_cuda_tensor_map(s, &boxes[1], &p.k);
    qrn_cuda_tensor_map(s, &boxes[2], &p.v);
    return p;
}

/* Parts of each sequence, each of whose blocks has a multiprocessor: before the walk the first part
 * takes one block, others but the last two; in it all take two narrow ones, or one wide one.  A chunk
 * takes 1.1 us before the walk, 1.2 in a narrow block and 1.7 in a wide one: parts that all are narrow
 * are better if they are 5/6 as many. */
static int32_t parts_of(const struct qrn_cuda_stream *s, int64_t most, int64_t n_items)
{
    const int64_t fitting = s->cuda->n_multiprocessors / n_items, narrow = fitting / 2;
    int64_t n = (fitting + 3) / 2;
    if (n > MOST_PARTS / n_items + 1) n = MOST_PARTS / n_items + 1;
    if (n > MOST_OF_A_SEQUENCE) n = MOST_OF_A_SEQUENCE;
    if (n > narrow && 6 * narrow >= 5 * n) n = narrow;
    if (n > most) n = most;
    return n > 2 ? (int32_t)n : 1;
}

static void walk_parts(struct qrn_cuda_stream *s, const struct qrn_gdn_wgmma_params *p,
                       int64_t n_items)
{
    static const struct qrn_cuda_function parts = {qrn_cuda_image_gdn_open_wgmma_sm90a,
                                                   "qrn_gdn_open_parts", QRN_GDN_PARTS_BYTES},
                                          join = {qrn_cuda_image_gdn_open_join_sm90a,
                                                  "qrn_gdn_open_join", 0};
    if (p->n_parts < 2) return;
    qrn_cuda_launch(s, &parts,
                    (struct qrn_cuda_grid){.n_blocks = (2 * (p->n_parts - 1) - 1) * n_items,
                                           .n_threads = 384,
                                           .shared_bytes = QRN_GDN_PARTS_BYTES},
                    p);
    if (p->n_parts < 3) return;
    qrn_cuda_launch(s, &join,
                    (struct qrn_cuda_grid){.n_blocks = WIDTH / QRN_GDN_WGMMA_JOINED * n_items,
                                           .n_threads = 256},
                    p);
}

/* The walk, of few heads cut into parts: one warpgroup a block while every block can have a
 * multiprocessor of its own, the two of a head near each other in a cluster. */
static void walk(struct qrn_cuda_stream *s, struct qrn_gdn_wgmma_params *p, int64_t n_items)
{
    static const struct qrn_cuda_function narrow = {qrn_cuda_image_gdn_open_wgmma_sm90a,
                                                    "qrn_gdn_open_walk_64", QRN_GDN_WALK_BYTES(1)},
                                          wide = {qrn_cuda_image_gdn_open_wgmma_sm90a,
                                                  "qrn_gdn_open_walk_128", QRN_GDN_WALK_BYTES(2)};
    p->n_parts = parts_of(s, p->n_parts, n_items);
    walk_parts(s, p, n_items);
    const int64_t n_walks = p->n_parts * n_items;
    const bool is_narrow = 2 * n_walks <= s->cuda->n_multiprocessors;
    const struct qrn_cuda_grid grid = {.n_blocks = (is_narrow ? 2 : 1) * n_walks,
                                       .n_cluster = is_narrow ? 2 : 0,
                                       .n_threads = is_narrow ? 160 : 384,
                                       .shared_bytes = is_narrow ? QRN_GDN_WALK_BYTES(1)
                                                                 : QRN_GDN_WALK_BYTES(2)};
    qrn_cuda_launch(s, is_narrow ? &narrow : &wide, grid, p);
}

/* Some key heads of all sequences. */
static void run_heads(struct qrn_cuda_stream *s, const struct qrn_gdn_wgmma_params *of_all)
{
    struct qrn_gdn_wgmma_params p = *of_all;
    static const struct qrn_cuda_function prepare = {qrn_cuda_image_gdn_open_prepare_sm90a,
                                                     "qrn_gdn_open_prepare", QRN_GDN_PREPARE_BYTES};
    const int64_t n = p.n_numbers * p.n_k_heads,
                  fitting = QRN_GDN_PREPARE_AT_ONCE * (int64_t)s->cuda->n_multiprocessors / n,
                  fewest = (p.ratio + QRN_GDN_PREPARE_HEADS - 1) / QRN_GDN_PREPARE_HEADS;
    p.n_shares = (int32_t)(fitting < fewest ? fewest : fitting < p.ratio ? fitting : p.ratio);
    qrn_cuda_launch(s, &prepare,
                    (struct qrn_cuda_grid){.n_blocks = n * p.n_shares,
                                           .n_threads = 128,
                                           .shared_bytes = QRN_GDN_PREPARE_BYTES},
                    &p);
    walk(s, &p, p.c.x.sequences.n_seqs * p.n_k_heads * p.ratio);
}

static void run_rounded(struct qrn_cuda_stream *s, const struct qrn_gdn_open_chunk_args *a,
                        const struct plan *plan, const struct qrn_tensor *x)
{
    struct qrn_gdn_wgmma_params p = params_of(s, a, plan, x);
    const int64_t n_k_heads = p.c.x.heads.n_k;
    for (p.first_k_head = 0; p.first_k_head < n_k_heads; p.first_k_head += plan->n_k_heads) {
        const int64_t left = n_k_heads - p.first_k_head;
        p.n_k_heads = left < plan->n_k_heads ? left : plan->n_k_heads;
        run_heads(s, &p);
    }
}

static void run(void *stream, const void *args)
{
    struct qrn_cuda_stream *s = stream;
    const struct qrn_gdn_open_chunk_args *a = args;
    const struct plan plan = plan_of(a);
    struct qrn_tensor x[] = {a->q, a->k, a->v};
    if (a->q.dtype == QRN_F32) {
        const CUdeviceptr rounded = rounded_of(s, &plan);
        round_to(s, &x[0], rounded);
        round_to(s, &x[1], rounded + plan.q_bytes);
        round_to(s, &x[2], rounded + 2 * plan.q_bytes);
    }
    run_rounded(s, a, &plan, x);
}

uint16_t *qrn_cuda_gdn_wgmma_rounded(const struct qrn_cuda_stream *s,
                                     const struct qrn_gdn_open_chunk_args *a)
{
    const struct plan plan = plan_of(a);
    return (uint16_t *)(uintptr_t)rounded_of(s, &plan);
}

void qrn_cuda_gdn_wgmma_behind(struct qrn_cuda_stream *s, const struct qrn_gdn_open_chunk_args *a)
{
    const struct plan plan = plan_of(a);
    struct qrn_tensor x[] = {a->q, a->k, a->v};
    const int64_t n_k = a->q.shape[1], n_heads = 2 * n_k + a->v.shape[1],
                  first[] = {0, n_k, 2 * n_k};
    for (int i = 0; i < 3; i++) {
        x[i].data = qrn_cuda_gdn_wgmma_rounded(s, a) + first[i] * WIDTH;
        x[i].stride[0] = n_heads * WIDTH;
        x[i].stride[1] = WIDTH;
    }
    run_rounded(s, a, &plan, x);
}

const struct qrn_kernel qrn_cuda_gdn_open_chunk_wgmma = {
    .op = QRN_OP_gdn_open_chunk,
    .name = "cuda.gdn_open_chunk.wgmma",
    .needs = QRN_CUDA_SM90,
    .serves = "QRN_ACT_BF16, d_k and d_v 128; of f32 more than 4 tokens a sequence",
    .supports = supports,
    .scratch_bytes = scratch,
    .run = run,
};
