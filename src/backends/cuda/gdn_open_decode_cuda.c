/* SPDX-License-Identifier: MIT
 * gdn_open_chunk on Hopper, one token of each sequence: of few heads, of up to two for each
 * multiprocessor, and of many. */
#include "backends/cuda/gdn.h"
#include "backends/cuda/op_params.h"

QRN_CUDA_IMAGE(gdn_open_decode_sm90a);
QRN_CUDA_IMAGE(gdn_open_few_sm90a);
QRN_CUDA_IMAGE(gdn_open_head_sm90a);

enum {
    D = 128,
    BYTES = QRN_GDN_DECODE_BYTES,
    FEW_AT_ONCE = 2, /* blocks of gdn_open_few; three have room, but take longer */
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

static struct qrn_gdn_open_norm_params params_of(const struct qrn_cuda_stream *s,
                                                 const struct qrn_gdn_open_chunk_args *a, int width,
                                                 const struct qrn_rms_norm_args *norm)
{
    struct qrn_gdn_open_norm_params p = {.chunk = qrn_gdn_open_chunk_params(a, width)};
    p.chunk.numbers_stay = s->numbers_stay;
    p.chunk.settled = p.chunk.numbers_stay && a->settled;
    if (norm) p.norm = qrn_cuda_rms_norm_params(norm);
    return p;
}

static void run_few(struct qrn_cuda_stream *s, const struct qrn_gdn_open_chunk_args *a)
{
    static const struct qrn_cuda_function f = {qrn_cuda_image_gdn_open_few_sm90a,
                                               "qrn_gdn_open_few", QRN_GDN_FEW_BYTES};
    const struct qrn_gdn_open_norm_params p = params_of(s, a, D / 2, NULL);
    qrn_cuda_launch(s, &f, qrn_cuda_gdn_few_grid(a), &p.chunk);
}

/* As many blocks as multiprocessors have room for, beside as many of the next launch: where some have one
 * more than others, they are waited for. */
static void run_heads(struct qrn_cuda_stream *s, const struct qrn_gdn_open_chunk_args *a,
                      int64_t n_heads, const struct qrn_rms_norm_args *norm)
{
    static const struct qrn_cuda_function plain = {qrn_cuda_image_gdn_open_head_sm90a,
                                                   "qrn_gdn_open_head", QRN_GDN_HEAD_ALONE_BYTES,
                                                   .most_shared = true},
                                          normed = {qrn_cuda_image_gdn_open_head_sm90a,
                                                    "qrn_gdn_open_head_norm",
                                                    QRN_GDN_HEAD_ALONE_BYTES, .most_shared = true};
    const struct qrn_gdn_open_norm_params p = params_of(s, a, D / 2, norm);
    const int64_t n_multiprocessors = s->cuda->n_multiprocessors;
    const bool is_one = n_heads <= n_multiprocessors;
    qrn_cuda_launch(s, norm ? &normed : &plain,
                    (struct qrn_cuda_grid){
                        .n_blocks = (is_one ? 1 : QRN_GDN_HEAD_AT_ONCE) * n_multiprocessors,
                        .n_threads = QRN_GDN_HEAD_THREADS,
                        .shared_bytes = is_one ? QRN_GDN_HEAD_ALONE_BYTES : QRN_GDN_HEAD_BYTES},
                    &p); /* the plain one's params come first */
}

static void run_many(struct qrn_cuda_stream *s, const struct qrn_gdn_open_chunk_args *a,
                     int64_t n_heads, const struct qrn_rms_norm_args *norm)
{
    static const struct qrn_cuda_function plain = {qrn_cuda_image_gdn_open_decode_sm90a,
                                                   "qrn_gdn_open_decode", BYTES},
                                          normed = {qrn_cuda_image_gdn_open_decode_sm90a,
                                                    "qrn_gdn_open_decode_norm", BYTES};
    const struct qrn_gdn_open_norm_params p = params_of(s, a, D, norm);
    const int64_t most = AT_ONCE * (int64_t)s->cuda->n_multiprocessors;
    qrn_cuda_launch(s, norm ? &normed : &plain,
                    (struct qrn_cuda_grid){.n_blocks = n_heads < most ? n_heads : most,
                                           .n_threads = QRN_GDN_DECODE_THREADS +
                                                        (norm ? 32 : 0), /* a warp norms */
                                           .shared_bytes = BYTES},
                    &p);
}

void qrn_cuda_gdn_decode(struct qrn_cuda_stream *s, const struct qrn_gdn_open_chunk_args *a,
                         const struct qrn_rms_norm_args *norm)
{
    const int64_t n_heads = a->position.shape[0] * a->v.shape[1];
    if (n_heads <= QRN_GDN_HEAD_AT_ONCE * s->cuda->n_multiprocessors)
        run_heads(s, a, n_heads, norm);
    else
        run_many(s, a, n_heads, norm);
}

static void run(void *stream, const void *args)
{
    struct qrn_cuda_stream *s = stream;
    if (qrn_cuda_gdn_is_few(args, s->cuda->n_multiprocessors))
        run_few(s, args);
    else
        qrn_cuda_gdn_decode(s, args, NULL);
}

const struct qrn_kernel qrn_cuda_gdn_open_chunk_decode = {
    .op = QRN_OP_gdn_open_chunk,
    .name = "cuda.gdn_open_chunk.decode",
    .needs = QRN_CUDA_SM90,
    .serves = "f32, d_k and d_v 128, no more tokens than sequences",
    .supports = supports,
    .run = run,
};
