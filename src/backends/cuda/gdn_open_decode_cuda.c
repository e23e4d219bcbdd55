/* SPDX-License-Identifier: MIT
 * gdn_open_chunk on Hopper, one token of each sequence: of few heads, of up to two for each
 * multiprocessor, and of many. */
#include "backends/cuda/gdn.h"

QRN_CUDA_IMAGE(gdn_open_decode_sm90a);
QRN_CUDA_IMAGE(gdn_open_few_sm90a);
QRN_CUDA_IMAGE(gdn_open_head_sm90a);

enum {
    D = 128,
    BYTES = QRN_GDN_DECODE_BYTES,
    FEW_AT_ONCE = 3, /* blocks of gdn_open_few that a multiprocessor has room for */
    FEW_SLICES = 4,
    AT_ONCE = 2 /* the same of gdn_open_decode: one works while the other waits */
};

/* Rows of 16-byte pieces. */
static bool rows_fit(const struct qrn_tensor *t)
{
    return (uintptr_t)t->data % 16 == 0 && t->stride[0] % 4 == 0 && t->stride[1] % 4 == 0;
}

static bool supports(const void *args)
{
    const struct qrn_gdn_open_chunk_args *a = args;
    return a->q.dtype == QRN_F32 && a->q.shape[2] == D && a->v.shape[2] == D &&
           a->q.shape[0] <= a->position.shape[0] && rows_fit(&a->q) && rows_fit(&a->k) &&
           rows_fit(&a->v);
}

bool qrn_cuda_gdn_is_few(const struct qrn_gdn_open_chunk_args *a, int64_t n_multiprocessors)
{
    return a->position.shape[0] * a->v.shape[1] * FEW_SLICES <= n_multiprocessors * FEW_AT_ONCE;
}

struct qrn_cuda_grid qrn_cuda_gdn_few_grid(const struct qrn_gdn_open_chunk_args *a)
{
    return (struct qrn_cuda_grid){.n_blocks = a->v.shape[1] * FEW_SLICES,
                                  .n_blocks_y = (unsigned)a->position.shape[0],
                                  .n_threads = 128,
                                  .shared_bytes = QRN_GDN_FEW_BYTES};
}

static struct qrn_gdn_open_chunk_params
params_of(const struct qrn_cuda_stream *s, const struct qrn_gdn_open_chunk_args *a, int width)
{
    struct qrn_gdn_open_chunk_params p = qrn_gdn_open_chunk_params(a, width);
    p.numbers_stay = s->numbers_stay;
    p.settled = p.numbers_stay && a->settled;
    return p;
}

static void run_few(void *stream, const struct qrn_gdn_open_chunk_args *a)
{
    static const struct qrn_cuda_function f = {qrn_cuda_image_gdn_open_few_sm90a,
                                               "qrn_gdn_open_few", QRN_GDN_FEW_BYTES};
    const struct qrn_gdn_open_chunk_params p = params_of(stream, a, D / 2);
    qrn_cuda_launch(stream, &f, qrn_cuda_gdn_few_grid(a), &p);
}

/* As many blocks as multiprocessors have room for, beside as many of the next launch: where some have one
 * more than others, they are waited for. */
static void run_heads(void *stream, const struct qrn_gdn_open_chunk_args *a, int64_t n_heads)
{
    static const struct qrn_cuda_function f = {qrn_cuda_image_gdn_open_head_sm90a,
                                               "qrn_gdn_open_head", QRN_GDN_HEAD_ALONE_BYTES,
                                               .most_shared = true};
    const struct qrn_gdn_open_chunk_params p = params_of(stream, a, D / 2);
    const int64_t n_multiprocessors =
        ((const struct qrn_cuda_stream *)stream)->cuda->n_multiprocessors;
    const bool is_one = n_heads <= n_multiprocessors;
    qrn_cuda_launch(stream, &f,
                    (struct qrn_cuda_grid){
                        .n_blocks = (is_one ? 1 : QRN_GDN_HEAD_AT_ONCE) * n_multiprocessors,
                        .n_threads = QRN_GDN_HEAD_THREADS,
                        .shared_bytes = is_one ? QRN_GDN_HEAD_ALONE_BYTES : QRN_GDN_HEAD_BYTES},
                    &p);
}

static void run(void *stream, const void *args)
{
    static const struct qrn_cuda_function f = {qrn_cuda_image_gdn_open_decode_sm90a,
                                               "qrn_gdn_open_decode", BYTES};
    const struct qrn_gdn_open_chunk_args *a = args;
    const struct qrn_cuda_stream *s = stream;
    const int64_t n_heads = a->position.shape[0] * a->v.shape[1],
                  n_multiprocessors = s->cuda->n_multiprocessors,
                  most = AT_ONCE * n_multiprocessors;
    if (qrn_cuda_gdn_is_few(a, n_multiprocessors)) {
        run_few(stream, a);
        return;
    }
    if (n_heads <= QRN_GDN_HEAD_AT_ONCE * n_multiprocessors) {
        run_heads(stream, a, n_heads);
        return;
    }
    const struct qrn_gdn_open_chunk_params p = params_of(stream, a, D);
    qrn_cuda_launch(stream, &f,
                    (struct qrn_cuda_grid){.n_blocks = n_heads < most ? n_heads : most,
                                           .n_threads = QRN_GDN_DECODE_THREADS,
                                           .shared_bytes = BYTES},
                    &p);
}

const struct qrn_kernel qrn_cuda_gdn_open_chunk_decode = {
    .op = QRN_OP_gdn_open_chunk,
    .name = "cuda.gdn_open_chunk.decode",
    .needs = QRN_CUDA_SM90,
    .serves = "f32, d_k and d_v 128, no more tokens than sequences",
    .supports = supports,
    .run = run,
};
