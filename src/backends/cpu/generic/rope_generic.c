/* SPDX-License-Identifier: MIT
 * rope in portable C: cosines and sines once per token, in double from the float32 angle. */
#include "backends/cpu/rope_rotate.h"
#include "backends/cpu/rows.h"
#include "ops/rope_angles.h"

static int64_t rotated(const struct qrn_rope_args *a)
{
    return a->n_rot ? a->n_rot : a->x.shape[2];
}

static size_t scratch_bytes(const void *args, int n_threads)
{
    return rope_table_bytes(rotated(args), n_threads);
}

static void run(void *lane, const void *args)
{
    const struct qrn_rope_args *a = args;
    const int64_t n_heads = a->x.shape[1], d = a->x.shape[2], n_rot = rotated(a), half = n_rot / 2;
    const struct rope_table table = rope_table_of(lane, n_rot);
    const bool neox = a->mode == QRN_ROPE_NEOX;
    const float magnitude = rope_magnitude(&a->scaling);
    const float *factors = a->freq_factors.data;
    const int32_t *positions = a->positions.data;
    int64_t begin, end;
    qrn_cpu_share(lane, a->x.shape[0] * n_heads, 1, &begin, &end);
    if (begin == end) return;
    for (int64_t i = 0; i < half; i++) {
        const double ff = a->freq_factors.n_dims ? (double)factors[i] : 1.0;
        table.frequency[i] = rope_frequency(&a->scaling, a->theta, n_rot, i, ff);
    }
    for (int64_t r = begin; r < end; r++) {
        const int64_t t = r / n_heads;
        if (r == begin || r % n_heads == 0)
            for (int64_t i = 0; i < half; i++) rope_turn(&table, i, (float)positions[t], magnitude);
        rope_rotate(&table, qrn_row_f32(&a->x, r), qrn_row_f32(&a->out, r), n_rot, d, neox ? 1 : 2,
                    neox ? half : 1);
    }
}

const struct qrn_kernel qrn_cpu_rope_generic = {
    .op = QRN_OP_rope,
    .name = "cpu.rope.generic",
    .scratch_bytes = scratch_bytes,
    .run = run,
};
