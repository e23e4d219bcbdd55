/* SPDX-License-Identifier: MIT
 * gdn_open_chunk of many tokens on Hopper, each with the bits that it has alone: products of keys of all chunks first, then
 * chunk after chunk. */
#include "backends/cuda/gdn.h"
#include "backends/cuda/gdn_open_chunk_cuda.h"

QRN_CUDA_IMAGE(gdn_open_exact_sm90a);
QRN_CUDA_IMAGE(gdn_open_products_sm90a);

/* Tokens of sequences that have more than one each: 64 at a time. */
static bool supports(const void *args)
{
    const struct qrn_gdn_open_chunk_args *a = args;
    return a->q.dtype == QRN_F32 && a->q.shape[2] <= QRN_GDN_TILE_MAX_KEY &&
           a->q.shape[0] > 4 * a->position.shape[0];
}

static int64_t n_numbers(const struct qrn_gdn_open_chunk_args *a)
{
    return a->q.shape[0] / QRN_CUDA_GDN_CHUNK + 2 * a->position.shape[0];
}

static size_t scratch_bytes(const void *args, int n_threads)
{
    const struct qrn_gdn_open_chunk_args *a = args;
    (void)n_threads;
    return (size_t)(n_numbers(a) * a->k.shape[1]) * sizeof(struct qrn_gdn_products);
}

static void run(void *stream, const void *args)
{
    static const struct qrn_cuda_function products = {qrn_cuda_image_gdn_open_products_sm90a,
                                                      "qrn_gdn_open_products",
                                                      QRN_GDN_PRODUCTS_BYTES},
                                          walk = {qrn_cuda_image_gdn_open_exact_sm90a,
                                                  "qrn_gdn_open_exact", QRN_GDN_EXACT_BYTES};
    struct qrn_cuda_stream *s = stream;
    struct qrn_gdn_exact_params p = {.c = qrn_gdn_open_chunk_params(args, QRN_GDN_TILE_COLUMNS),
                                     .products = (struct qrn_gdn_products *)(uintptr_t)s->scratch};
    p.c.keeps_later = 1;
    qrn_cuda_launch(s, &products,
                    (struct qrn_cuda_grid){.n_blocks = n_numbers(args) * p.c.x.heads.n_k,
                                           .n_threads = QRN_GDN_PRODUCTS_THREADS,
                                           .shared_bytes = QRN_GDN_PRODUCTS_BYTES},
                    &p);
    qrn_cuda_launch(s, &walk,
                    (struct qrn_cuda_grid){.n_blocks = qrn_gdn_open_n_blocks(&p.c),
                                           .n_threads = QRN_GDN_TILE_THREADS,
                                           .shared_bytes = QRN_GDN_EXACT_BYTES},
                    &p);
    qrn_gdn_open_keep(s, &p.c);
}

const struct qrn_kernel qrn_cuda_gdn_open_chunk_exact = {
    .op = QRN_OP_gdn_open_chunk,
    .name = "cuda.gdn_open_chunk.exact",
    .needs = QRN_CUDA_SM90,
    .serves = "f32, d_k up to 128, more than 4 tokens a sequence",
    .supports = supports,
    .scratch_bytes = scratch_bytes,
    .run = run,
};
