/* SPDX-License-Identifier: MIT
 * gdn_open_chunk: steps of few tokens, and tiles of 64. */
#include "backends/cuda/gdn_open_chunk_cuda.h"
#include "backends/cuda/gdn.h"

QRN_CUDA_IMAGE(gdn_open_step);
QRN_CUDA_IMAGE(gdn_open_tile);

struct qrn_gdn_open_chunk_params qrn_gdn_open_chunk_params(const struct qrn_gdn_open_chunk_args *a,
                                                           int64_t width)
{
    return (struct qrn_gdn_open_chunk_params){.x = qrn_gdn_tokens(&a->q, &a->k, &a->v, &a->g,
                                                                  &a->beta, &a->out, &a->seq_begin,
                                                                  a->head_map),
                                              .position = a->position.data,
                                              .state = a->state.data,
                                              .rows = a->rows.data,
                                              .state_stride = a->state.stride[0],
                                              .rows_stride = a->rows.stride[0],
                                              .state_offset = a->state_offset,
                                              .rows_offset = a->rows_offset,
                                              .n_slices = (a->v.shape[2] + width - 1) / width,
                                              .scale = a->scale};
}

int64_t qrn_gdn_open_n_blocks(const struct qrn_gdn_open_chunk_params *p)
{
    return p->x.sequences.n_seqs * p->x.heads.n_v * p->n_slices;
}

void qrn_gdn_open_keep(struct qrn_cuda_stream *s, struct qrn_gdn_open_chunk_params *p)
{
    static const struct qrn_cuda_function f = {qrn_cuda_image_gdn_open_step, "qrn_gdn_open_keep",
                                               0};
    qrn_cuda_launch(s, &f,
                    (struct qrn_cuda_grid){.n_blocks = p->x.sequences.n_seqs * p->x.heads.n_k,
                                           .n_threads = QRN_THREADS},
                    p);
}

/* Tokens of sequences that have more than one each: 64 at a time. */
static bool tiles_support(const void *args)
{
    const struct qrn_gdn_open_chunk_args *a = args;
    return a->q.dtype == QRN_F32 && a->q.shape[2] <= QRN_GDN_TILE_MAX_KEY &&
           a->q.shape[0] > 4 * a->position.shape[0];
}

/* Turned keys and queries (in whose place the products of keys come), state and rows u. */
static unsigned tile_bytes(int64_t d_k)
{
    const int64_t turned = d_k * QRN_GDN_TILE_STRIDE,
                  products = 2 * QRN_CUDA_GDN_CHUNK * QRN_CUDA_GDN_CHUNK;
    const int64_t second = turned > products ? turned : products;
    const int64_t columns = (d_k + QRN_CUDA_GDN_CHUNK) * QRN_GDN_TILE_COLUMNS;
    return (unsigned)((turned + second + columns) * 4 + QRN_CUDA_GDN_CHUNK * (8 + 4 + 4 + 4));
}

static void run_tiles(void *stream, const void *args)
{
    static const struct qrn_cuda_function f = {qrn_cuda_image_gdn_open_tile, "qrn_gdn_open_tile",
                                               97 * 1024};
    struct qrn_gdn_open_chunk_params p = qrn_gdn_open_chunk_params(args, QRN_GDN_TILE_COLUMNS);
    p.keeps_later = 1;
    qrn_cuda_launch(stream, &f,
                    (struct qrn_cuda_grid){.n_blocks = qrn_gdn_open_n_blocks(&p),
                                           .n_threads = QRN_GDN_TILE_THREADS,
                                           .shared_bytes = tile_bytes(p.x.d_k)},
                    &p);
    qrn_gdn_open_keep(stream, &p);
}

const struct qrn_kernel qrn_cuda_gdn_open_chunk_tiles = {
    .op = QRN_OP_gdn_open_chunk,
    .name = "cuda.gdn_open_chunk.tiles",
    .needs = QRN_CUDA_SM80,
    .serves = "f32, d_k up to 128, more than 4 tokens a sequence",
    .supports = tiles_support,
    .run = run_tiles,
};

static bool steps_support(const void *args)
{
    const struct qrn_gdn_open_chunk_args *a = args;
    return a->q.dtype == QRN_F32;
}

/* Few heads are cut into slices, so that all multiprocessors have some; each column is summed alone,
 * so that changes no bit. */
void qrn_gdn_open_run_steps(void *stream, const void *args)
{
    static const struct qrn_cuda_function narrow = {qrn_cuda_image_gdn_open_step,
                                                    "qrn_gdn_open_step_32", 0},
                                          wide = {qrn_cuda_image_gdn_open_step,
                                                  "qrn_gdn_open_step_128", 0};
    const struct qrn_gdn_open_chunk_args *a = args;
    const struct qrn_cuda_stream *s = stream;
    const int64_t n_heads = a->position.shape[0] * a->v.shape[1];
    const bool cut = n_heads < 2 * s->cuda->n_multiprocessors || a->v.shape[2] <= 32;
    struct qrn_gdn_open_chunk_params p = qrn_gdn_open_chunk_params(a, cut ? 32 : 128);
    p.keeps_later = a->q.shape[0] > a->position.shape[0];
    p.numbers_stay = s->numbers_stay;
    qrn_cuda_launch(
        stream, cut ? &narrow : &wide,
        (struct qrn_cuda_grid){.n_blocks = qrn_gdn_open_n_blocks(&p), .n_threads = cut ? 128 : 192},
        &p);
    if (p.keeps_later) qrn_gdn_open_keep(stream, &p);
}

const struct qrn_kernel qrn_cuda_gdn_open_chunk_steps = {
    .op = QRN_OP_gdn_open_chunk,
    .name = "cuda.gdn_open_chunk.steps",
    .needs = QRN_CUDA_SM80,
    .serves = "f32",
    .supports = steps_support,
    .run = qrn_gdn_open_run_steps,
};
