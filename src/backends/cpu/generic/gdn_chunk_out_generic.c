/* SPDX-License-Identifier: MIT
 * gdn_chunk_out in portable C. */
#include "backends/cpu/gdn_stage.h"

/* Queries, keys turned over, h turned over [d_k][d_v], v_new, one row of out. */
static int64_t lane_floats(const struct qrn_gdn_chunk_out_args *a)
{
    const int64_t d_k = a->q.shape[2], d_v = a->v_new.shape[2];
    return 2 * STAGE_CHUNK * d_k + d_k * d_v + STAGE_CHUNK * d_v + (d_v > d_k ? d_v : d_k);
}

static size_t scratch(const void *args, int n_threads)
{
    return (size_t)n_threads * (size_t)lane_floats(args) * sizeof(float);
}

/* h of one chunk and head, turned over. */
static void load_state(float *out, const struct qrn_gdn_chunk_out_args *a, int64_t i_chunk,
                       int64_t head, float *row)
{
    const int64_t d_k = a->q.shape[2], d_v = a->v_new.shape[2];
    const struct qrn_tensor one = qrn_tensor_slice(a->h, 0, i_chunk, 1);
    const struct qrn_tensor h = {.dtype = a->h.dtype, .n_dims = 3, .data = one.data,
                                 .stride = {a->h.stride[1], a->h.stride[2], 1}};
    for (int64_t j = 0; j < d_v; j++) {
        stage_load(row, &h, head, j, 0, d_k);
        for (int64_t i = 0; i < d_k; i++) out[i * d_v + j] = row[i];
    }
}

static void work(const void *args, int64_t i_chunk, struct gdn_chunk c, int64_t h, float *q)
{
    const struct qrn_gdn_chunk_out_args *a = args;
    const int64_t d_k = a->q.shape[2], d_v = a->v_new.shape[2];
    const int64_t kh = gdn_key_head(a->head_map, h, a->q.shape[1], a->v_new.shape[1]);
    float *keys = q + STAGE_CHUNK * d_k, *S = keys + STAGE_CHUNK * d_k, *v = S + d_k * d_v;
    float *row = v + STAGE_CHUNK * d_v;
    double G[STAGE_CHUNK];
    stage_G_of(G, &a->G, c, h);
    stage_rows(q, &a->k, c, kh, 0, d_k);
    stage_turn(keys, q, c.n, d_k);
    stage_rows(q, &a->q, c, kh, 0, d_k);
    stage_rows(v, &a->v_new, c, h, 0, d_v);
    load_state(S, a, i_chunk, h, row);
    for (int64_t i = 0; i < c.n; i++) {
        float weight[STAGE_CHUNK] = {0};
        stage_add_rows(weight, STAGE_CHUNK, q + i * d_k, d_k, keys, STAGE_CHUNK);
        for (int64_t j = 0; j <= i; j++) weight[j] *= stage_decay(G, i, j);
        const float decay = expf((float)G[i]);
        for (int64_t e = 0; e < d_v; e++) row[e] = 0.0f;
        stage_add_rows(row, d_v, q + i * d_k, d_k, S, d_v);
        for (int64_t e = 0; e < d_v; e++) row[e] *= decay;
        stage_add_rows(row, d_v, weight, i + 1, v, d_v);
        for (int64_t e = 0; e < d_v; e++) row[e] *= a->scale;
        stage_store(&a->out, c.begin + i, h, 0, d_v, row);
    }
}

static void run(void *lane, const void *args)
{
    const struct qrn_gdn_chunk_out_args *a = args;
    stage_walk(lane, a, &a->seq_begin, a->q.shape[0], a->v_new.shape[1], lane_floats(a), work);
}

const struct qrn_kernel qrn_cpu_gdn_chunk_out_generic = {
    .op = QRN_OP_gdn_chunk_out,
    .name = "cpu.gdn_chunk_out.generic",
    .scratch_bytes = scratch,
    .run = run,
};
