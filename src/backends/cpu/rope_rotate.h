/* SPDX-License-Identifier: MIT
 * Rotating one head by given cosines and sines: what the kernels of rope and rope_multi share. */
#ifndef QUERN_BACKENDS_CPU_ROPE_ROTATE_H
#define QUERN_BACKENDS_CPU_ROPE_ROTATE_H

#include <math.h>
#include <string.h>

#include "backends/cpu/cpu.h"

/* What a lane keeps: n_rot / 2 of each. */
struct rope_table {
    float *frequency, *cosine, *sine;
};

static inline size_t rope_table_bytes(int64_t n_rot, int n_threads)
{
    return ((size_t)n_rot / 2 * 3 * sizeof(float) + 63) / 64 * 64 * (size_t)n_threads;
}

static inline struct rope_table rope_table_of(const struct qrn_cpu_lane *lane, int64_t n_rot)
{
    float *f = (void *)((char *)lane->scratch + rope_table_bytes(n_rot, 1) * (size_t)lane->i);
    return (struct rope_table){f, f + n_rot / 2, f + n_rot};
}

static inline void rope_turn(const struct rope_table *table, int64_t i, float position,
                             float magnitude)
{
    const double angle = (double)(position * table->frequency[i]);
    table->cosine[i] = (float)cos(angle) * magnitude;
    table->sine[i] = (float)sin(angle) * magnitude;
}

/* out may be x.  Pair i stands at i * step and i * step + distance. */
static inline void rope_rotate(const struct rope_table *table, const float *x, float *out,
                               int64_t n_rot, int64_t head_dim, int64_t step, int64_t distance)
{
    for (int64_t i = 0; i < n_rot / 2; i++) {
        const float x0 = x[i * step], x1 = x[i * step + distance];
        const float c = table->cosine[i], s = table->sine[i];
        out[i * step] = x0 * c - x1 * s;
        out[i * step + distance] = x1 * c + x0 * s;
    }
    if (out != x) memcpy(out + n_rot, x + n_rot, (size_t)(head_dim - n_rot) * sizeof *x);
}

#endif
