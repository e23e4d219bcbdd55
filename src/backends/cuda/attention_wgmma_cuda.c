/* SPDX-License-Identifier: MIT
 * attention and attention_paged on Hopper's tensor cores: prompts, where queries and weights may be
 * rounded. */
#include "backends/cuda/attention_wgmma_cuda.h"
#include "backends/cuda/attention_params.h"
#include "backends/cuda/tensor_map.h"
#include "ops/attention_row.h"

QRN_CUDA_IMAGE(attention_wgmma_sm90a);

#define FUNCTION(name, d)                                                         \
    {                                                                             \
        qrn_cuda_image_attention_wgmma_sm90a, "qrn_attention_wgmma_" name "_" #d, \
            QRN_WGMMA_SHARED(d)                                                   \
    }
#define FUNCTIONS(name)                                              \
    {                                                                \
        FUNCTION(name, 64), FUNCTION(name, 128), FUNCTION(name, 256) \
    }

/* What the kernel can do, whatever is worth its while. */
static bool takes(const struct qrn_attention_params *p)
{
    const bool is_width = p->d_k == 64 || p->d_k == 128 || p->d_k == 256;
    return is_width && p->d_v == p->d_k && p->softcap == 0.0f && p->scale > 0.0f && !p->mask &&
           !p->classes && p->n_tokens * p->group < INT32_MAX / 2 && p->n_kv < INT32_MAX / 2;
}

static int64_t count_tiles(const struct qrn_attention_params *p)
{
    return p->n_batch * p->n_kv_heads * qrn_cuda_attention_tiles(p, QRN_WGMMA_ROWS);
}

/* What is behind scratch is there where a step has some: the count of tiles. */
enum { SCRATCH = 16 };

static size_t scratch(const void *args, int n_threads)
{
    (void)args, (void)n_threads;
    return SCRATCH;
}

enum source { OF_F16, OF_BF16, OF_PAGES };

/* Blocks stay, one a multiprocessor, and take tiles in turn. */
static void launch(struct qrn_cuda_stream *stream, struct qrn_attention_wgmma_params *p,
                   enum source source)
{
    static const struct qrn_cuda_function functions[3][3] = {FUNCTIONS("f16"), FUNCTIONS("bf16"),
                                                             FUNCTIONS("paged")};
    const struct qrn_cuda_function *f = &functions[source][p->a.d_v / 128];
    const int64_t n_tiles = count_tiles(&p->a), most = stream->cuda->n_multiprocessors;
    p->a.n_tiles = qrn_cuda_attention_tiles(&p->a, QRN_WGMMA_ROWS);
    p->n_tiles = (int32_t)n_tiles;
    p->n_taken = stream->cuda->handover;
    qrn_cuda_launch(stream, f,
                    (struct qrn_cuda_grid){.n_blocks = n_tiles < most ? n_tiles : most,
                                           .n_threads = QRN_WGMMA_THREADS,
                                           .shared_bytes = (unsigned)f->max_shared_bytes},
                    p);
}

/* --- plain buffers --- */

/* Matrices are [batch][kv head], which one distance must lead through. */
static bool box_of(const struct qrn_tensor *plain, struct qrn_tensor_box *box)
{
    const struct qrn_tensor t = attention_batched(*plain);
    const int64_t n_batch = t.shape[0], n_heads = t.shape[2];
    *box = (struct qrn_tensor_box){.data = t.data,
                                   .dtype = t.dtype,
                                   .n = t.shape[3],
                                   .n_rows = t.shape[1],
                                   .n_matrices = n_batch * n_heads,
                                   .row_bytes = 2 * t.stride[1],
                                   .matrix_bytes = 2 * (n_heads > 1 ? t.stride[2] : t.stride[0]),
                                   .box_n = 64,
                                   .box_rows = QRN_WGMMA_KEYS(t.shape[3])};
    if (n_batch > 1 && n_heads > 1 && t.stride[0] != t.stride[2] * n_heads) return false;
    if (box->n_matrices == 1) box->matrix_bytes = 0;
    return box->matrix_bytes >= 0 && qrn_cuda_can_map(box);
}

static bool supports(const void *args)
{
    const struct qrn_attention_args *a = args;
    const struct qrn_attention_params p = qrn_cuda_attention_params(a);
    struct qrn_tensor_box box;
    const bool pays =
        p.n_tokens * p.group >= QRN_ROUNDED_ROWS &&
        (p.n_kv_heads * qrn_cuda_attention_tiles(&p, QRN_ROUNDED_TILE) >= QRN_ROUNDED_TILES ||
         p.n_kv <= QRN_ROUNDED_KEYS);
    return a->acts == QRN_ACT_BF16 && (a->k.dtype == QRN_F16 || a->k.dtype == QRN_BF16) && pays &&
           takes(&p) && box_of(&a->k, &box) && box_of(&a->v, &box);
}

static void run(void *stream, const void *args)
{
    const struct qrn_attention_args *a = args;
    struct qrn_attention_wgmma_params p = {.a = qrn_cuda_attention_params(a)};
    struct qrn_tensor_box k, v;
    if (!box_of(&a->k, &k) || !box_of(&a->v, &v)) return; /* supports has looked */
    qrn_cuda_tensor_map(stream, &k, &p.k);
    qrn_cuda_tensor_map(stream, &v, &p.v);
    launch(stream, &p, a->k.dtype == QRN_BF16 ? OF_BF16 : OF_F16);
}

const struct qrn_kernel qrn_cuda_attention_wgmma = {
    .op = QRN_OP_attention,
    .name = "cuda.attention.wgmma",
    .needs = QRN_CUDA_SM90,
    .serves = "acts bf16: f16 and bf16, heads of 64, 128, 256, prompts without masks",
    .supports = supports,
    .scratch_bytes = scratch,
    .run = run,
};

/* --- pages --- */

static size_t paged_scratch(const void *args, int n_threads)
{
    const size_t others = qrn_cuda_attention_paged_mma_scratch(args, n_threads);
    return others > SCRATCH ? others : SCRATCH;
}

static bool paged_supports(const void *args)
{
    const struct qrn_attention_paged_args *a = args;
    const struct qrn_attention_params p = qrn_cuda_attention_paged_params(a);
    return a->acts == QRN_ACT_BF16 && a->kv_type == QRN_F16 &&
           p.n_tokens * p.group >= QRN_ROUNDED_ROWS && takes(&p);
}

/* Bulk copies bring pages, where the driver makes maps of anywhere. */
static bool map_pages(struct qrn_cuda_stream *stream, struct qrn_attention_wgmma_params *p)
{
    const int64_t d = p->a.d_k;
    return qrn_cuda_map_anywhere(stream, QRN_KV_PAGE_TOKENS, d, 2 * QRN_KV_PAGE_TOKENS, (int)d,
                                 &p->k) &&
           qrn_cuda_map_anywhere(stream, d, QRN_KV_PAGE_TOKENS, 2 * d, QRN_KV_PAGE_TOKENS, &p->v);
}

/* Sequences of few rows are in the same call as those of many: each kernel passes over the tiles of
 * the other. */
static void run_paged(void *stream, const void *args)
{
    struct qrn_attention_wgmma_params p = {.a = qrn_cuda_attention_paged_params(args)};
    struct qrn_attention_params others = p.a;
    const bool all_rounded =
        p.a.paged.n_seqs == 1 &&
        p.a.n_tokens * p.a.group / QRN_ROUNDED_TILE * p.a.n_kv_heads >= QRN_ROUNDED_TILES;
    if (map_pages(stream, &p)) {
        p.a.only = QRN_ATTENTION_ROUNDED;
        launch(stream, &p, OF_PAGES);
        if (all_rounded) return;
        others.only = QRN_ATTENTION_EXACT;
    }
    qrn_cuda_attention_run_mma(stream, &others);
}

const struct qrn_kernel qrn_cuda_attention_paged_wgmma = {
    .op = QRN_OP_attention_paged,
    .name = "cuda.attention_paged.wgmma",
    .needs = QRN_CUDA_SM90,
    .serves = "acts bf16: f16, heads of 64, 128, 256, prompts",
    .supports = paged_supports,
    .scratch_bytes = paged_scratch,
    .run = run_paged,
};
