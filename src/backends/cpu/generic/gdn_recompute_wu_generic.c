/* SPDX-License-Identifier: MIT
 * gdn_recompute_wu in portable C. */
#include "backends/cpu/gdn_stage.h"

/* Rows of k or of v, times their factors; one row of the result. */
static int64_t lane_floats(const struct qrn_gdn_recompute_wu_args *a)
{
    const int64_t d = a->k.shape[2] > a->v.shape[2] ? a->k.shape[2] : a->v.shape[2];
    return (STAGE_CHUNK + 1) * d;
}

static size_t scratch(const void *args, int n_threads)
{
    return (size_t)n_threads * (size_t)lane_floats(args) * sizeof(float);
}

/* out_i = sum over j <= i of inverse[i][j] (factor_j in_j) */
static void product(const struct qrn_gdn_recompute_wu_args *a, struct gdn_chunk c, int64_t h,
                    const struct qrn_tensor *in, int64_t in_head, const float *factor,
                    const struct qrn_tensor *out, float *rows)
{
    const int64_t d = in->shape[2];
    float *sum = rows + STAGE_CHUNK * d;
    stage_rows(rows, in, c, in_head, 0, d);
    for (int64_t j = 0; j < c.n; j++)
        for (int64_t e = 0; e < d; e++) rows[j * d + e] *= factor[j];
    for (int64_t i = 0; i < c.n; i++) {
        float inverse[STAGE_CHUNK];
        stage_load(inverse, &a->inverse, c.begin + i, h, 0, STAGE_CHUNK);
        for (int64_t e = 0; e < d; e++) sum[e] = 0.0f;
        stage_add_rows(sum, d, inverse, i + 1, rows, d);
        stage_store(out, c.begin + i, h, 0, d, sum);
    }
}

static void work(const void *args, int64_t i_chunk, struct gdn_chunk c, int64_t h, float *rows)
{
    const struct qrn_gdn_recompute_wu_args *a = args;
    float beta[STAGE_CHUNK], decayed[STAGE_CHUNK];
    (void)i_chunk;
    for (int64_t j = 0; j < c.n; j++) {
        beta[j] = stage_f32(&a->beta, c.begin + j, h);
        decayed[j] = beta[j] * expf((float)stage_G(&a->G, c.begin + j, h));
    }
    const int64_t kh = gdn_key_head(a->head_map, h, a->k.shape[1], a->v.shape[1]);
    product(a, c, h, &a->k, kh, decayed, &a->w, rows);
    product(a, c, h, &a->v, h, beta, &a->u, rows);
}

static void run(void *lane, const void *args)
{
    const struct qrn_gdn_recompute_wu_args *a = args;
    stage_walk(lane, a, &a->seq_begin, a->k.shape[0], a->v.shape[1], lane_floats(a), work);
}

const struct qrn_kernel qrn_cpu_gdn_recompute_wu_generic = {
    .op = QRN_OP_gdn_recompute_wu,
    .name = "cpu.gdn_recompute_wu.generic",
    .scratch_bytes = scratch,
    .run = run,
};
