/* SPDX-License-Identifier: MIT
 * gdn_solve in portable C: forward substitution, columns in lanes. */
#include "backends/cpu/gdn_stage.h"

/* Rows of the inverse, contiguous. */
enum { LANE_FLOATS = STAGE_CHUNK * STAGE_CHUNK };

static size_t scratch(const void *args, int n_threads)
{
    (void)args;
    return (size_t)n_threads * LANE_FLOATS * sizeof(float);
}

/* Row i of A is read before row i of the inverse is written: they may be the same. */
static void work(const void *args, int64_t i_chunk, struct gdn_chunk c, int64_t h, float *X)
{
    const struct qrn_gdn_solve_args *a = args;
    (void)i_chunk;
    for (int64_t i = 0; i < c.n; i++) {
        float row[STAGE_CHUNK], *x = X + i * STAGE_CHUNK;
        stage_load(row, &a->A, c.begin + i, h, 0, STAGE_CHUNK);
        for (int64_t j = 0; j < STAGE_CHUNK; j++) {
            x[j] = j == i ? 1.0f : 0.0f;
            row[j] = -row[j];
        }
        stage_add_rows(x, STAGE_CHUNK, row, i, X, STAGE_CHUNK);
        stage_store(&a->inverse, c.begin + i, h, 0, STAGE_CHUNK, x);
    }
}

static void run(void *lane, const void *args)
{
    const struct qrn_gdn_solve_args *a = args;
    stage_walk(lane, a, &a->seq_begin, a->A.shape[0], a->A.shape[1], LANE_FLOATS, work);
}

const struct qrn_kernel qrn_cpu_gdn_solve_generic = {
    .op = QRN_OP_gdn_solve, .name = "cpu.gdn_solve.generic", .scratch_bytes = scratch, .run = run,
};
