/* SPDX-License-Identifier: MIT
 * gdn_chunk_state in portable C: the state turned over, d_v in lanes, so that sums ascend in d_k
 * and in tokens. */
#include "backends/cpu/gdn_stage.h"

enum { ROWS = 32 }; /* of d_v: an item of work, with one head of one sequence */

/* S [d_k][ROWS], rows of w and of k, v_new [STAGE_CHUNK][ROWS], one row of the state. */
static int64_t lane_floats(const struct qrn_gdn_chunk_state_args *a)
{
    const int64_t d_k = a->k.shape[2];
    return d_k * ROWS + 2 * STAGE_CHUNK * d_k + STAGE_CHUNK * ROWS + d_k;
}

static size_t scratch(const void *args, int n_threads)
{
    return (size_t)n_threads * (size_t)lane_floats(args) * sizeof(float);
}

/* Row j of head h of one state of [.., n_v_heads, d_v, d_k], as stage_load wants it. */
static struct qrn_tensor rows_of(const struct qrn_tensor *t, int64_t first)
{
    const struct qrn_tensor one = qrn_tensor_slice(*t, 0, first, 1);
    return (struct qrn_tensor){.dtype = t->dtype, .n_dims = 3, .data = one.data,
                               .stride = {t->stride[1], t->stride[2], 1}};
}

static void store_state(const struct qrn_tensor *t, int64_t h, int64_t j, int64_t n, const float *S,
                        int64_t d_k, float *row)
{
    for (int64_t r = 0; r < n; r++) {
        for (int64_t i = 0; i < d_k; i++) row[i] = S[i * ROWS + r];
        stage_store(t, h, j + r, 0, d_k, row);
    }
}

/* Rows j .. j + n - 1 of S [d_k][ROWS] through one chunk. */
static void chunk(const struct qrn_gdn_chunk_state_args *a, struct gdn_chunk c, int64_t h,
                  int64_t j, int64_t n, float *S)
{
    const int64_t d_k = a->k.shape[2],
                  kh = gdn_key_head(a->head_map, h, a->k.shape[1], a->u.shape[1]);
    float *w = S + d_k * ROWS, *k = w + STAGE_CHUNK * d_k, *v_new = k + STAGE_CHUNK * d_k;
    double G[STAGE_CHUNK];
    stage_G_of(G, &a->G, c, h);
    stage_rows(w, &a->w, c, h, 0, d_k);
    stage_rows(k, &a->k, c, kh, 0, d_k);
    for (int64_t t = 0; t < c.n; t++) {
        float *x = v_new + t * ROWS, u[ROWS];
        stage_load(u, &a->u, c.begin + t, h, j, n);
        for (int64_t r = 0; r < ROWS; r++) x[r] = 0.0f;
        stage_add_rows(x, n, w + t * d_k, d_k, S, ROWS);
        for (int64_t r = 0; r < n; r++) x[r] = u[r] - x[r];
        stage_store(&a->v_new, c.begin + t, h, j, n, x);
        const float decay = stage_decay(G, c.n - 1, t);
        for (int64_t r = 0; r < n; r++) x[r] *= decay;
    }
    const float decay = expf((float)G[c.n - 1]);
    for (int64_t i = 0; i < d_k; i++) {
        float *s = S + i * ROWS;
        for (int64_t r = 0; r < n; r++) s[r] *= decay;
        for (int64_t t = 0; t < c.n; t++)
            for (int64_t r = 0; r < n; r++) s[r] += k[t * d_k + i] * v_new[t * ROWS + r];
    }
}

static void item(const struct qrn_gdn_chunk_state_args *a, int64_t s, int64_t h, int64_t j,
                 int64_t n, float *S)
{
    const int64_t d_k = a->k.shape[2], n_tokens = a->k.shape[0];
    const struct qrn_tensor in = rows_of(&a->state_in, s), out = rows_of(&a->state_out, s);
    float *row = S + lane_floats(a) - d_k;
    for (int64_t i = 0; i < d_k * ROWS; i++) S[i] = 0.0f;
    for (int64_t r = 0; r < n; r++) {
        stage_load(row, &in, h, j + r, 0, d_k);
        for (int64_t i = 0; i < d_k; i++) S[i * ROWS + r] = row[i];
    }
    for (int64_t i = gdn_chunks_before(&a->seq_begin, n_tokens, s);
         i < gdn_chunks_before(&a->seq_begin, n_tokens, s + 1); i++) {
        const struct qrn_tensor start = rows_of(&a->h, i);
        store_state(&start, h, j, n, S, d_k, row);
        chunk(a, gdn_chunk_at(&a->seq_begin, n_tokens, i), h, j, n, S);
    }
    store_state(&out, h, j, n, S, d_k, row);
}

static void run(void *arg, const void *args)
{
    const struct qrn_cpu_lane *lane = arg;
    const struct qrn_gdn_chunk_state_args *a = args;
    const int64_t n_heads = a->u.shape[1], d_v = a->u.shape[2], n_blocks = (d_v + ROWS - 1) / ROWS;
    int64_t begin, end;
    qrn_cpu_share(lane, a->state_in.shape[0] * n_heads * n_blocks, 1, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        const int64_t head = i / n_blocks, j = i % n_blocks * ROWS;
        item(a, head / n_heads, head % n_heads, j, d_v - j < ROWS ? d_v - j : ROWS,
             (float *)lane->scratch + lane->i * lane_floats(a));
    }
}

const struct qrn_kernel qrn_cpu_gdn_chunk_state_generic = {
    .op = QRN_OP_gdn_chunk_state,
    .name = "cpu.gdn_chunk_state.generic",
    .scratch_bytes = scratch,
    .run = run,
};
