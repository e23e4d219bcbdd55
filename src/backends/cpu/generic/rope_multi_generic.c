/* SPDX-License-Identifier: MIT
 * rope_multi in portable C: the rotation of rope, with positions from several axes. */
#include "backends/cpu/rope_rotate.h"
#include "backends/cpu/rows.h"
#include "ops/rope_angles.h"

static int64_t rotated(const struct qrn_rope_multi_args *a)
{
    return a->n_rot ? a->n_rot : a->x.shape[2];
}

static size_t scratch_bytes(const void *args, int n_threads)
{
    return rope_table_bytes(rotated(args), n_threads);
}

static void run(void *lane, const void *args)
{
    const struct qrn_rope_multi_args *a = args;
    const int64_t n_heads = a->x.shape[1], d = a->x.shape[2], n_rot = rotated(a), half = n_rot / 2;
    const struct rope_table table = rope_table_of(lane, n_rot);
    const int32_t *positions = a->positions.data;
    int64_t begin, end;
    qrn_cpu_share(lane, a->x.shape[0] * n_heads, 1, &begin, &end);
    if (begin == end) return;
    for (int64_t p = 0; p < half; p++) table.frequency[p] = rope_multi_frequency(a, n_rot, p);
    for (int64_t r = begin; r < end; r++) {
        const int64_t t = r / n_heads;
        if (r == begin || r % n_heads == 0)
            for (int64_t p = 0; p < half; p++) {
                const int64_t at = rope_multi_axis(a, p) * a->positions.stride[0] + t;
                rope_turn(&table, p, (float)positions[at], 1.0f);
            }
        rope_rotate(&table, qrn_row_f32(&a->x, r), qrn_row_f32(&a->out, r), n_rot, d, 1, half);
    }
}

const struct qrn_kernel qrn_cpu_rope_multi_generic = {
    .op = QRN_OP_rope_multi,
    .name = "cpu.rope_multi.generic",
    .scratch_bytes = scratch_bytes,
    .run = run,
};
