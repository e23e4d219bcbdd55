/* SPDX-License-Identifier: MIT
 * The walk over tokens and heads that the variants of rope and rope_multi share: cosines and sines
 * once per token, then every head of it is rotated. */
#ifndef QUERN_BACKENDS_CPU_ROPE_WALK_H
#define QUERN_BACKENDS_CPU_ROPE_WALK_H

#include <math.h>
#include <string.h>

#include "backends/cpu/cpu.h"
#include "backends/cpu/rows.h"
#include "ops/rope_angles.h"

enum { ROPE_PAD = 16 }; /* arrays of a table end in zeros up to a multiple of this */

/* What a lane keeps of n pairs, padded.  When pairs are neighbours the two elements of each have an
 * entry in cosine and in sine, the first sine negative. */
struct rope_table {
    float *frequency, *position;
    float *cosine, *sine; /* [2 n] */
    int32_t *axis;
    int64_t n, padded;
};

struct rope_steps {
    /* cosine and sine of position * frequency, rounded to float, times magnitude. */
    void (*turn)(const struct rope_table *table, float magnitude);
    /* Pairs n apart.  out may be x. */
    void (*rotate_halves)(const struct rope_table *table, const float *x, float *out);
    /* Pairs of neighbours. */
    void (*rotate_pairs)(const struct rope_table *table, const float *x, float *out);
};

static inline int64_t rope_padded(int64_t n_rot)
{
    return (n_rot / 2 + ROPE_PAD - 1) / ROPE_PAD * ROPE_PAD;
}

static inline size_t rope_table_bytes(int64_t n_rot, int n_threads)
{
    return (size_t)rope_padded(n_rot) * 7 * sizeof(float) * (size_t)n_threads;
}

static inline struct rope_table rope_table_of(const struct qrn_cpu_lane *lane, int64_t n_rot)
{
    const int64_t p = rope_padded(n_rot);
    float *f = (float *)lane->scratch + p * 7 * lane->i;
    memset(f, 0, rope_table_bytes(n_rot, 1));
    return (struct rope_table){.frequency = f, .position = f + p, .cosine = f + 2 * p,
                               .sine = f + 4 * p, .axis = (int32_t *)(void *)(f + 6 * p),
                               .n = n_rot / 2, .padded = p};
}

static inline void rope_turn_pair(const struct rope_table *table, int64_t i, float magnitude)
{
    const double angle = (double)(table->position[i] * table->frequency[i]);
    table->cosine[i] = (float)cos(angle) * magnitude;
    table->sine[i] = (float)sin(angle) * magnitude;
}

/* An entry for each element of the pairs. */
static inline void rope_double_table(const struct rope_table *table)
{
    for (int64_t i = table->n - 1; i >= 0; i--) {
        const float c = table->cosine[i], s = table->sine[i];
        table->cosine[2 * i] = table->cosine[2 * i + 1] = c;
        table->sine[2 * i] = -s;
        table->sine[2 * i + 1] = s;
    }
}

static inline void rope_keep_rest(const float *x, float *out, int64_t n_rot, int64_t head_dim)
{
    if (out != x) memcpy(out + n_rot, x + n_rot, (size_t)(head_dim - n_rot) * sizeof *x);
}

static inline int64_t rope_n_rot(const struct qrn_rope_args *a)
{
    return a->n_rot ? a->n_rot : a->x.shape[2];
}

static inline size_t rope_scratch(const void *args, int n_threads)
{
    return rope_table_bytes(rope_n_rot(args), n_threads);
}

static inline void rope_walk(const struct qrn_cpu_lane *lane, const struct qrn_rope_args *a,
                             const struct rope_steps *steps)
{
    const int64_t n_heads = a->x.shape[1], n_rot = rope_n_rot(a);
    const bool neox = a->mode == QRN_ROPE_NEOX;
    const float magnitude = rope_magnitude(&a->scaling);
    const float *factors = a->freq_factors.data;
    const int32_t *positions = a->positions.data;
    int64_t begin, end;
    qrn_cpu_share(lane, a->x.shape[0] * n_heads, 1, &begin, &end);
    if (begin == end) return;
    const struct rope_table table = rope_table_of(lane, n_rot);
    for (int64_t i = 0; i < table.n; i++) {
        const double ff = a->freq_factors.n_dims ? (double)factors[i] : 1.0;
        table.frequency[i] = rope_frequency(&a->scaling, a->theta, n_rot, i, ff);
    }
    for (int64_t r = begin; r < end; r++) {
        const float *x = qrn_row_f32(&a->x, r);
        float *out = qrn_row_f32(&a->out, r);
        if (r == begin || r % n_heads == 0) {
            for (int64_t i = 0; i < table.n; i++) table.position[i] = (float)positions[r / n_heads];
            steps->turn(&table, magnitude);
            if (!neox) rope_double_table(&table);
        }
        if (neox)
            steps->rotate_halves(&table, x, out);
        else
            steps->rotate_pairs(&table, x, out);
        rope_keep_rest(x, out, n_rot, a->x.shape[2]);
    }
}

static inline int64_t rope_multi_n_rot(const struct qrn_rope_multi_args *a)
{
    return a->n_rot ? a->n_rot : a->x.shape[2];
}

static inline size_t rope_multi_scratch(const void *args, int n_threads)
{
    return rope_table_bytes(rope_multi_n_rot(args), n_threads);
}

static inline void rope_multi_walk(const struct qrn_cpu_lane *lane,
                                   const struct qrn_rope_multi_args *a,
                                   const struct rope_steps *steps)
{
    const int64_t n_heads = a->x.shape[1], n_rot = rope_multi_n_rot(a);
    const int32_t *positions = a->positions.data;
    int64_t begin, end;
    qrn_cpu_share(lane, a->x.shape[0] * n_heads, 1, &begin, &end);
    if (begin == end) return;
    const struct rope_table table = rope_table_of(lane, n_rot);
    for (int64_t i = 0; i < table.n; i++) {
        table.frequency[i] = rope_multi_frequency(a, n_rot, i);
        table.axis[i] = rope_multi_axis(a, i);
    }
    for (int64_t r = begin; r < end; r++) {
        const float *x = qrn_row_f32(&a->x, r);
        float *out = qrn_row_f32(&a->out, r);
        if (r == begin || r % n_heads == 0) {
            for (int64_t i = 0; i < table.n; i++)
                table.position[i] =
                    (float)positions[table.axis[i] * a->positions.stride[0] + r / n_heads];
            steps->turn(&table, 1.0f);
        }
        steps->rotate_halves(&table, x, out);
        rope_keep_rest(x, out, n_rot, a->x.shape[2]);
    }
}

#endif
