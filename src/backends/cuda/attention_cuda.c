/* SPDX-License-Identifier: MIT
 * attention and attention_paged: what the kernels are given, how work is cut. */
#include "backends/cuda/attention_params.h"
#include "backends/cuda/paged.h"
#include "backends/cuda/rows.h"
#include "ops/attention_row.h"

QRN_CUDA_IMAGE(attention);
QRN_CUDA_IMAGE(attention_merge);

/* Split where fewer blocks than these would run, as far as the partials stay below so many
 * bytes. */
enum {
    ENOUGH_BLOCKS = 264,
    PLAIN_ROWS = 16,
    PLAIN_DIMS = 256,
    MOST_SPLITS = 65535
};
#define MOST_PARTIAL_BYTES ((double)(256 << 20))

/* Of no elements there may be no memory. */
static void *data_of(const struct qrn_tensor *t)
{
    return t->n_dims && qrn_tensor_n_elements(t) ? t->data : NULL;
}

struct qrn_attention_params qrn_cuda_attention_params(const struct qrn_attention_args *a)
{
    const struct qrn_tensor q = attention_batched(a->q), k = attention_batched(a->k),
                            v = attention_batched(a->v), out = attention_batched(a->out);
    struct qrn_attention_params p = {.q = data_of(&q),
                                     .out = out.data,
                                     .k = data_of(&k),
                                     .v = data_of(&v),
                                     .mask = data_of(&a->mask),
                                     .classes = data_of(&a->classes),
                                     .q_batch = q.stride[0],
                                     .q_token = q.stride[1],
                                     .q_head = q.stride[2],
                                     .out_batch = out.stride[0],
                                     .out_token = out.stride[1],
                                     .out_head = out.stride[2],
                                     .k_batch = k.stride[0],
                                     .k_token = k.stride[1],
                                     .k_head = k.stride[2],
                                     .v_batch = v.stride[0],
                                     .v_token = v.stride[1],
                                     .v_head = v.stride[2],
                                     .classes_stride = a->classes.stride[0],
                                     .n_batch = q.shape[0],
                                     .n_tokens = q.shape[1],
                                     .n_kv = k.shape[1],
                                     .q_offset = a->q_offset,
                                     .window = a->window,
                                     .d_k = q.shape[3],
                                     .d_v = v.shape[3],
                                     .n_heads = q.shape[2],
                                     .n_kv_heads = k.shape[2],
                                     .group = q.shape[2] / k.shape[2],
                                     .kv_type = (int32_t)a->k.dtype,
                                     .mask_type = (int32_t)a->mask.dtype,
                                     .causal = a->causal,
                                     .scale = a->scale,
                                     .softcap = a->softcap};
    const int n = a->mask.n_dims;
    if (n) p.mask_token = a->mask.stride[n - 2];
    if (n > 2) p.mask_head = a->mask.stride[n - 3];
    if (n > 3) p.mask_batch = a->mask.stride[0];
    return p;
}

struct qrn_attention_params
qrn_cuda_attention_paged_params(const struct qrn_attention_paged_args *a)
{
    const int64_t d = a->q.shape[2];
    return (struct qrn_attention_params){.paged = qrn_paged_of(&a->seq_begin, &a->position,
                                                               &a->pages, a->q.shape[0],
                                                               a->n_kv_heads, d, a->page_offset),
                                         .q = a->q.data,
                                         .out = a->out.data,
                                         .q_token = a->q.stride[0],
                                         .q_head = a->q.stride[1],
                                         .out_token = a->out.stride[0],
                                         .out_head = a->out.stride[1],
                                         .n_batch = 1,
                                         .n_tokens = a->q.shape[0],
                                         .n_kv = a->pages.shape[1] * QRN_KV_PAGE_TOKENS,
                                         .window = a->window,
                                         .d_k = d,
                                         .d_v = d,
                                         .n_heads = a->q.shape[1],
                                         .n_kv_heads = a->n_kv_heads,
                                         .group = a->q.shape[1] / a->n_kv_heads,
                                         .kv_type = (int32_t)a->kv_type,
                                         .causal = true,
                                         .scale = a->scale,
                                         .softcap = a->softcap};
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

int64_t qrn_cuda_attention_tiles(const struct qrn_attention_params *p, int64_t rows)
{
    if (p->n_tokens == 0) return 0;
    if (p->paged.pages) return p->n_tokens * p->group / rows + p->paged.n_seqs;
    return (p->n_tokens * p->group + rows - 1) / rows;
}

/* Sets n_tiles and n_runs. */
static void count(struct qrn_attention_params *p, int64_t rows, int64_t dims)
{
    int64_t n_blocks = (p->n_kv + QRN_ATTENTION_BLOCK - 1) / QRN_ATTENTION_BLOCK;
    p->n_tiles = qrn_cuda_attention_tiles(p, rows);
    p->n_parts = (int32_t)((p->d_v + dims - 1) / dims);
    p->n_runs = n_blocks > 0 ? QRN_ATTENTION_RUN_OF(n_blocks - 1) + 1 : 0;
    if (p->window && p->causal)
        p->n_runs = smaller(p->n_runs, (p->window - 1) / QRN_ATTENTION_BLOCK + 2);
}

/* Of all rows' runs. */
static double bytes_of_partials(const struct qrn_attention_params *p)
{
    return (double)(p->n_batch * p->n_tokens * p->n_heads) * (double)p->n_runs *
           (double)QRN_ATTENTION_PARTIAL(p->d_v) * sizeof(float);
}

/* Counts; how many blocks share a tile's runs, 1: none. */
static int64_t plan(struct qrn_attention_params *p, int64_t rows, int64_t dims)
{
    count(p, rows, dims);
    const int64_t n_blocks = p->n_batch * p->n_tiles * p->n_kv_heads * p->n_parts;
    if (n_blocks == 0 || n_blocks >= ENOUGH_BLOCKS || p->n_runs < 2 ||
        bytes_of_partials(p) > MOST_PARTIAL_BYTES)
        return 1;
    return smaller(smaller(p->n_runs, 2 * ENOUGH_BLOCKS / n_blocks + 1), MOST_SPLITS);
}

static size_t partial_bytes(const struct qrn_attention_params *p, int64_t n_splits)
{
    return n_splits < 2 ? 0 : (size_t)bytes_of_partials(p);
}

static void merge_runs(struct qrn_cuda_stream *stream, struct qrn_attention_params *p)
{
    static const struct qrn_cuda_function few = {qrn_cuda_image_attention_merge,
                                                 "qrn_attention_merge_few", 0},
                                          many = {qrn_cuda_image_attention_merge,
                                                  "qrn_attention_merge_runs", 0};
    const bool are_few = p->n_runs <= QRN_ATTENTION_MERGE_FEW;
    p->n_tiles = qrn_cuda_attention_tiles(p, 1);
    qrn_cuda_launch(stream, are_few ? &few : &many,
                    (struct qrn_cuda_grid){
                        .n_blocks = p->n_batch * p->n_tiles,
                        .n_blocks_y = (unsigned)p->n_kv_heads,
                        .n_blocks_z = (unsigned)((p->d_v + QRN_ATTENTION_MERGE_DIMS - 1) /
                                                 QRN_ATTENTION_MERGE_DIMS),
                        .n_threads = are_few ? QRN_ATTENTION_MERGE_FEW : QRN_ATTENTION_MERGE_RUNS},
                    p);
}

static void run_plain(struct qrn_cuda_stream *stream, struct qrn_attention_params *p)
{
    static const struct qrn_cuda_function floats = {qrn_cuda_image_attention, "qrn_attention_f32",
                                                    0},
                                          halves = {qrn_cuda_image_attention, "qrn_attention_16",
                                                    0};
    const int64_t n_splits = plan(p, PLAIN_ROWS, PLAIN_DIMS);
    if (p->d_v == 0) return;
    if (n_splits > 1) p->partial = (float *)(uintptr_t)stream->scratch;
    qrn_cuda_launch(stream, p->kv_type == QRN_F32 ? &floats : &halves,
                    (struct qrn_cuda_grid){.n_blocks = p->n_batch * p->n_tiles,
                                           .n_blocks_y = (unsigned)(p->n_kv_heads * p->n_parts),
                                           .n_blocks_z = (unsigned)n_splits,
                                           .n_threads = QRN_THREADS},
                    p);
    if (n_splits > 1) merge_runs(stream, p);
}

/* --- tensor cores: halves, heads of 64, 128, 256 --- */

/* SHARE_BLOCKS: what one block of threads takes of a sequence's keys at most, in blocks of keys, for
 * sequences may be of any length beside the longest; it is the length at which starting is little. */
enum { FEW_ROWS = 16, MANY_ROWS = 64, DECODE_THREADS = 128, SHARE_BLOCKS = 32 };

static int64_t least_one(int64_t n)
{
    return n > 0 ? n : 1;
}

/* Rows of a tile: where sequences have few tokens, all would be padding. */
static int64_t mma_rows(const struct qrn_attention_params *p)
{
    const int64_t n = p->paged.pages ? least_one(p->paged.n_seqs) : 1;
    const int64_t n_rows = p->n_tokens * p->group;
    if (p->paged.pages && n_rows <= FEW_ROWS / 2 * n) return FEW_ROWS / 2;
    return n_rows <= FEW_ROWS * n ? FEW_ROWS : MANY_ROWS;
}

/* The same as plan for attention_decode.cuh, whose blocks of threads all have room at once where they
 * are fewer than ENOUGH_BLOCKS; tiles that may be there and are not do not count. */
static int64_t plan_decode(struct qrn_attention_params *p, int64_t rows)
{
    count(p, rows, p->d_v);
    const int64_t n_rows = p->n_tokens * p->group, n_seqs = p->paged.n_seqs;
    const int64_t n_tiles = n_rows / rows > n_seqs ? n_rows / rows : n_seqs;
    const int64_t n_shares = ENOUGH_BLOCKS / least_one(n_tiles * p->n_kv_heads);
    const int64_t most = (p->n_kv / QRN_ATTENTION_BLOCK + SHARE_BLOCKS - 1) / SHARE_BLOCKS;
    const int64_t n = n_shares > 1 || p->window ? n_shares : most;
    if (n < 2 || p->n_runs < 2 || bytes_of_partials(p) > MOST_PARTIAL_BYTES) return 1;
    return smaller(smaller(n, p->n_runs), MOST_SPLITS);
}

int64_t qrn_cuda_attention_plan_decode(struct qrn_attention_params *p, int64_t *n_shares)
{
    const int64_t rows = mma_rows(p);
    if (rows > FEW_ROWS) return 0;
    *n_shares = plan_decode(p, rows);
    return rows;
}

static int64_t plan_mma(struct qrn_attention_params *p, int64_t rows)
{
    return p->paged.pages && rows <= FEW_ROWS ? plan_decode(p, rows) : plan(p, rows, p->d_v);
}

/* Shared memory as device/attention_mma.cu lays it out. */
#define MMA_SHARED(d, rows)                                                                    \
    (4 * (rows) * (d) + 256 * (d) + 256 * (rows) + (rows)*4 * ((rows) == FEW_ROWS ? 17 : 11) + \
     32 * (rows) + 160)
#define MMA_FUNCTION(name, d, rows)                                                  \
    {                                                                                \
        qrn_cuda_image_attention_mma, "qrn_attention_mma_" name, MMA_SHARED(d, rows) \
    }
#define MMA_FUNCTIONS(name, rows)                                                 \
    {                                                                             \
        MMA_FUNCTION(name "_64", 64, rows), MMA_FUNCTION(name "_128", 128, rows), \
            MMA_FUNCTION(name "_256", 256, rows)                                  \
    }

#define DECODE_FUNCTION(name, d)                                       \
    {                                                                  \
        qrn_cuda_image_attention_decode, "qrn_attention_decode_" name, \
            QRN_ATTENTION_DECODE_BYTES(d)                              \
    }
#define DECODE_FUNCTIONS(name)                                              \
    {                                                                       \
        DECODE_FUNCTION(name "_64", 64), DECODE_FUNCTION(name "_128", 128), \
            DECODE_FUNCTION(name "_256", 256)                               \
    }

QRN_CUDA_IMAGE(attention_mma);
QRN_CUDA_IMAGE(attention_decode);

static const struct qrn_cuda_function *mma_function(const struct qrn_attention_params *p,
                                                    int64_t rows)
{
    static const struct qrn_cuda_function functions[3][3] = {
        MMA_FUNCTIONS("few", FEW_ROWS), MMA_FUNCTIONS("many", MANY_ROWS),
        MMA_FUNCTIONS("paged_many", MANY_ROWS)};
    static const struct qrn_cuda_function decode[2][2][3] = {
        {DECODE_FUNCTIONS("8"), DECODE_FUNCTIONS("16")},
        {DECODE_FUNCTIONS("shared_8"), DECODE_FUNCTIONS("shared_16")}};
    const int64_t width = p->d_v / 128;
    if (p->paged.pages && rows <= FEW_ROWS)
        return &decode[p->partial != NULL][rows == FEW_ROWS][width];
    return &functions[p->paged.pages ? 2 : rows == MANY_ROWS][width];
}

void qrn_cuda_attention_run_mma(struct qrn_cuda_stream *stream, struct qrn_attention_params *p)
{
    const int64_t rows = mma_rows(p), n_splits = plan_mma(p, rows);
    if (n_splits > 1) p->partial = (float *)(uintptr_t)stream->scratch;
    p->numbers_stay = stream->numbers_stay;
    const struct qrn_cuda_function *f = mma_function(p, rows);
    const bool decodes = p->paged.pages && rows <= FEW_ROWS;
    qrn_cuda_launch(stream, f,
                    (struct qrn_cuda_grid){.n_blocks = p->n_batch * p->n_tiles,
                                           .n_blocks_y = (unsigned)p->n_kv_heads,
                                           .n_blocks_z = (unsigned)n_splits,
                                           .n_threads = decodes ? DECODE_THREADS : QRN_THREADS,
                                           .shared_bytes = (unsigned)f->max_shared_bytes},
                    p);
    if (n_splits > 1) merge_runs(stream, p);
}

static bool is_mma_width(int64_t d)
{
    return d == 64 || d == 128 || d == 256;
}

/* Rows in pieces of 16 bytes. */
static bool in_pieces(const struct qrn_tensor *t)
{
    bool good = (uintptr_t)t->data % 16 == 0;
    for (int i = 0; i < t->n_dims - 1; i++) good = good && t->stride[i] % 8 == 0;
    return good;
}

static bool mma_supports(const void *args)
{
    const struct qrn_attention_args *a = args;
    const int64_t d = a->q.shape[a->q.n_dims - 1];
    return a->k.dtype == QRN_F16 && is_mma_width(d) && a->v.shape[a->v.n_dims - 1] == d &&
           in_pieces(&a->k) && in_pieces(&a->v);
}

static size_t mma_scratch(const void *args, int n_threads)
{
    struct qrn_attention_params p = qrn_cuda_attention_params(args);
    (void)n_threads;
    return partial_bytes(&p, plan_mma(&p, mma_rows(&p)));
}

static void run_mma_flat(void *stream, const void *args)
{
    struct qrn_attention_params p = qrn_cuda_attention_params(args);
    qrn_cuda_attention_run_mma(stream, &p);
}

const struct qrn_kernel qrn_cuda_attention_mma = {
    .op = QRN_OP_attention,
    .name = "cuda.attention.mma",
    .needs = QRN_CUDA_SM80,
    .serves = "f16, heads of 64, 128, 256",
    .supports = mma_supports,
    .scratch_bytes = mma_scratch,
    .run = run_mma_flat,
};

static bool paged_mma_supports(const void *args)
{
    const struct qrn_attention_paged_args *a = args;
    return a->kv_type == QRN_F16 && is_mma_width(a->q.shape[2]);
}

size_t qrn_cuda_attention_paged_mma_scratch(const void *args, int n_threads)
{
    struct qrn_attention_params p = qrn_cuda_attention_paged_params(args);
    (void)n_threads;
    return partial_bytes(&p, plan_mma(&p, mma_rows(&p)));
}

static void run_mma_paged(void *stream, const void *args)
{
    struct qrn_attention_params p = qrn_cuda_attention_paged_params(args);
    qrn_cuda_attention_run_mma(stream, &p);
}

const struct qrn_kernel qrn_cuda_attention_paged_mma = {
    .op = QRN_OP_attention_paged,
    .name = "cuda.attention_paged.mma",
    .needs = QRN_CUDA_SM80,
    .serves = "f16, heads of 64, 128, 256",
    .supports = paged_mma_supports,
    .scratch_bytes = qrn_cuda_attention_paged_mma_scratch,
    .run = run_mma_paged,
};

/* --- every call --- */

static size_t plain_scratch(const void *args, int n_threads)
{
    struct qrn_attention_params p = qrn_cuda_attention_params(args);
    (void)n_threads;
    return partial_bytes(&p, plan(&p, PLAIN_ROWS, PLAIN_DIMS));
}

static void run(void *stream, const void *args)
{
    struct qrn_attention_params p = qrn_cuda_attention_params(args);
    run_plain(stream, &p);
}

const struct qrn_kernel qrn_cuda_attention_plain = {
    .op = QRN_OP_attention,
    .name = "cuda.attention.plain",
    .needs = QRN_CUDA_SM80,
    .scratch_bytes = plain_scratch,
    .run = run,
};

static size_t paged_plain_scratch(const void *args, int n_threads)
{
    struct qrn_attention_params p = qrn_cuda_attention_paged_params(args);
    (void)n_threads;
    return partial_bytes(&p, plan(&p, PLAIN_ROWS, PLAIN_DIMS));
}

static void run_paged(void *stream, const void *args)
{
    struct qrn_attention_params p = qrn_cuda_attention_paged_params(args);
    run_plain(stream, &p);
}

const struct qrn_kernel qrn_cuda_attention_paged_plain = {
    .op = QRN_OP_attention_paged,
    .name = "cuda.attention_paged.plain",
    .needs = QRN_CUDA_SM80,
    .scratch_bytes = paged_plain_scratch,
    .run = run_paged,
};
