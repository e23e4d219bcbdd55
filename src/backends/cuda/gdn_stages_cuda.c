/* SPDX-License-Identifier: MIT
 * The chunk stages of the gated delta rule. */
#include "backends/cuda/gdn_stages_cuda.h"
#include "backends/cuda/gdn.h"

QRN_CUDA_IMAGE(gdn_stages);
QRN_CUDA_IMAGE(gdn_chunks);

static struct qrn_gdn_stage_tensor tensor(const struct qrn_tensor *t)
{
    struct qrn_gdn_stage_tensor r = {.data = qrn_data_of(t)};
    for (int i = 0; i < t->n_dims - 1 && i < 3; i++) r.stride[i] = t->stride[i];
    return r;
}

/* Sequences of a call, its gates of n_tokens and n_heads. */
static struct qrn_gdn_stage_params params_of(const struct qrn_tensor *seq_begin,
                                             const struct qrn_tensor *gates)
{
    struct qrn_gdn_stage_params p = {.sequences = qrn_ragged(seq_begin, gates->shape[0]),
                                     .heads = {1, gates->shape[1], 0, (int32_t)gates->shape[1]}};
    const int64_t T = gates->shape[0], n = QRN_CUDA_GDN_CHUNK;
    p.n_chunks = seq_begin->n_dims ? T / n + p.sequences.n_seqs : (T + n - 1) / n;
    if (T == 0) p.n_chunks = 0;
    return p;
}

static void set_keys(struct qrn_gdn_stage_params *p, const struct qrn_tensor *k,
                     enum qrn_head_map map)
{
    p->k = tensor(k);
    p->d_k = k->shape[2];
    p->bf16 = k->dtype == QRN_BF16;
    p->heads.n_k = k->shape[1];
    p->heads.tiled = map == QRN_HEADS_TILED;
}

static void set_G(struct qrn_gdn_stage_params *p, const struct qrn_tensor *G)
{
    p->G = tensor(G);
    p->G_f64 = G->dtype == QRN_F64;
}

static void launch(void *stream, const struct qrn_cuda_function *f, int64_t n_blocks,
                   unsigned n_threads, const struct qrn_gdn_stage_params *p)
{
    qrn_cuda_launch(stream, f, (struct qrn_cuda_grid){.n_blocks = n_blocks, .n_threads = n_threads},
                    p);
}

static void run_cumsum(void *stream, const void *args)
{
    static const struct qrn_cuda_function f = {qrn_cuda_image_gdn_stages, "qrn_gdn_cumsum", 0};
    const struct qrn_gdn_cumsum_args *a = args;
    struct qrn_gdn_stage_params p = params_of(&a->seq_begin, &a->g);
    p.g = tensor(&a->g);
    set_G(&p, &a->G);
    launch(stream, &f, p.n_chunks, 64, &p);
}

static void run_kkt(void *stream, const void *args)
{
    static const struct qrn_cuda_function f = {qrn_cuda_image_gdn_stages, "qrn_gdn_kkt", 0};
    const struct qrn_gdn_kkt_args *a = args;
    struct qrn_gdn_stage_params p = params_of(&a->seq_begin, &a->beta);
    set_keys(&p, &a->k, a->head_map);
    set_G(&p, &a->G);
    p.beta = tensor(&a->beta);
    p.A = tensor(&a->A);
    launch(stream, &f, p.n_chunks * p.heads.n_k, QRN_GDN_STAGE_THREADS, &p);
}

static void run_solve(void *stream, const void *args)
{
    static const struct qrn_cuda_function f = {qrn_cuda_image_gdn_stages, "qrn_gdn_solve", 0};
    const struct qrn_gdn_solve_args *a = args;
    struct qrn_gdn_stage_params p = params_of(&a->seq_begin, &a->A);
    p.A = tensor(&a->A);
    p.inverse = tensor(&a->inverse);
    launch(stream, &f, p.n_chunks * p.heads.n_v, QRN_CUDA_GDN_CHUNK, &p);
}

static void run_recompute_wu(void *stream, const void *args)
{
    static const struct qrn_cuda_function f = {qrn_cuda_image_gdn_stages, "qrn_gdn_recompute_wu",
                                               0};
    const struct qrn_gdn_recompute_wu_args *a = args;
    struct qrn_gdn_stage_params p = params_of(&a->seq_begin, &a->beta);
    set_keys(&p, &a->k, a->head_map);
    set_G(&p, &a->G);
    p.d_v = a->v.shape[2];
    p.v = tensor(&a->v);
    p.beta = tensor(&a->beta);
    p.inverse = tensor(&a->inverse);
    p.w = tensor(&a->w);
    p.u = tensor(&a->u);
    launch(stream, &f, p.n_chunks * p.heads.n_v, QRN_GDN_STAGE_THREADS, &p);
}

static void run_chunk_state(void *stream, const void *args)
{
    static const struct qrn_cuda_function f = {qrn_cuda_image_gdn_chunks, "qrn_gdn_chunk_state", 0};
    const struct qrn_gdn_chunk_state_args *a = args;
    struct qrn_gdn_stage_params p = params_of(&a->seq_begin, &a->G);
    set_keys(&p, &a->k, a->head_map);
    set_G(&p, &a->G);
    p.d_v = a->u.shape[2];
    p.w = tensor(&a->w);
    p.u = tensor(&a->u);
    p.v_new = tensor(&a->v_new);
    p.h = tensor(&a->h);
    p.state_in = tensor(&a->state_in);
    p.state_out = tensor(&a->state_out);
    p.n_slices = (p.d_v + QRN_GDN_STATE_COLUMNS - 1) / QRN_GDN_STATE_COLUMNS;
    launch(stream, &f, p.sequences.n_seqs * p.heads.n_v * p.n_slices, QRN_GDN_STAGE_THREADS, &p);
}

static void run_chunk_out(void *stream, const void *args)
{
    static const struct qrn_cuda_function f = {qrn_cuda_image_gdn_chunks, "qrn_gdn_chunk_out", 0};
    const struct qrn_gdn_chunk_out_args *a = args;
    struct qrn_gdn_stage_params p = params_of(&a->seq_begin, &a->G);
    set_keys(&p, &a->k, a->head_map);
    set_G(&p, &a->G);
    p.d_v = a->v_new.shape[2];
    p.q = tensor(&a->q);
    p.v_new = tensor(&a->v_new);
    p.h = tensor(&a->h);
    p.out = tensor(&a->out);
    p.scale = a->scale;
    p.n_slices = (p.d_v + QRN_GDN_OUT_COLUMNS - 1) / QRN_GDN_OUT_COLUMNS;
    /* Chunks that h has no place for are left out: the host does not know how many there are. */
    if (p.n_chunks > a->h.shape[0]) p.n_chunks = a->h.shape[0];
    launch(stream, &f, p.n_chunks * p.heads.n_v * p.n_slices, QRN_GDN_STAGE_THREADS, &p);
}

#define STAGE(name_)                                          \
    const struct qrn_kernel qrn_cuda_gdn_##name_##_chunks = { \
        .op = QRN_OP_gdn_##name_,                             \
        .name = "cuda.gdn_" #name_ ".chunks",                 \
        .needs = QRN_CUDA_SM80,                               \
        .run = run_##name_,                                   \
    }
STAGE(cumsum);
STAGE(kkt);
STAGE(solve);
STAGE(recompute_wu);
STAGE(chunk_state);
STAGE(chunk_out);
