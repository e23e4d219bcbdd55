/* SPDX-License-Identifier: MIT
 * gdn_kkt in portable C: a row of products at a time, keys in lanes. */
#include "backends/cpu/gdn_stage.h"

/* Keys [n][d_k], and turned over. */
static int64_t lane_floats(const struct qrn_gdn_kkt_args *a)
{
    return 2 * STAGE_CHUNK * a->k.shape[2];
}

static size_t scratch(const void *args, int n_threads)
{
    return (size_t)n_threads * (size_t)lane_floats(args) * sizeof(float);
}

static void work(const void *args, int64_t i_chunk, struct gdn_chunk c, int64_t h, float *keys)
{
    const struct qrn_gdn_kkt_args *a = args;
    const int64_t d_k = a->k.shape[2], n_v_heads = a->beta.shape[1];
    float *turned = keys + STAGE_CHUNK * d_k;
    double G[STAGE_CHUNK];
    (void)i_chunk;
    stage_rows(keys, &a->k, c, gdn_key_head(a->head_map, h, a->k.shape[1], n_v_heads), 0, d_k);
    stage_turn(turned, keys, c.n, d_k);
    stage_G_of(G, &a->G, c, h);
    for (int64_t i = 0; i < c.n; i++) {
        float row[STAGE_CHUNK] = {0};
        const float beta = stage_f32(&a->beta, c.begin + i, h);
        stage_add_rows(row, STAGE_CHUNK, keys + i * d_k, d_k, turned, STAGE_CHUNK);
        for (int64_t j = 0; j < STAGE_CHUNK; j++)
            row[j] = j < i ? beta * (stage_decay(G, i, j) * row[j]) : 0.0f;
        stage_store(&a->A, c.begin + i, h, 0, STAGE_CHUNK, row);
    }
}

static void run(void *lane, const void *args)
{
    const struct qrn_gdn_kkt_args *a = args;
    stage_walk(lane, a, &a->seq_begin, a->k.shape[0], a->beta.shape[1], lane_floats(a), work);
}

const struct qrn_kernel qrn_cpu_gdn_kkt_generic = {
    .op = QRN_OP_gdn_kkt, .name = "cpu.gdn_kkt.generic", .scratch_bytes = scratch, .run = run,
};
