/* SPDX-License-Identifier: MIT
 * Turning and rotating in portable C, for rope and rope_multi: cosines and sines in double from the
 * float32 angle. */
#ifndef QUERN_ROPE_SCALAR_GENERIC_H
#define QUERN_ROPE_SCALAR_GENERIC_H

#include "backends/cpu/rope_walk.h"

static void turn(const struct rope_table *table, float magnitude)
{
    for (int64_t i = 0; i < table->n; i++) rope_turn_pair(table, i, magnitude);
}

static void rotate_halves(const struct rope_table *table, const float *x, float *out)
{
    for (int64_t i = 0; i < table->n; i++) {
        const float a = x[i], b = x[i + table->n], c = table->cosine[i], s = table->sine[i];
        out[i] = a * c - b * s;
        out[i + table->n] = b * c + a * s;
    }
}

static void rotate_pairs(const struct rope_table *table, const float *x, float *out)
{
    for (int64_t i = 0; i < 2 * table->n; i += 2) {
        const float a = x[i], b = x[i + 1], c = table->cosine[i], s = table->sine[i + 1];
        out[i] = a * c - b * s;
        out[i + 1] = b * c + a * s;
    }
}

static const struct rope_steps rope_steps = {turn, rotate_halves, rotate_pairs};

#endif
