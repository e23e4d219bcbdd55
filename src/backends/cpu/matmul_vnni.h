/* SPDX-License-Identifier: MIT
 * Sums of products of bytes by vpdpbusd, on vectors of any width. */
#ifndef QUERN_BACKENDS_CPU_MATMUL_VNNI_H
#define QUERN_BACKENDS_CPU_MATMUL_VNNI_H

#include "backends/cpu/matmul_forms.h"

/* vpdpbusd wants weights unsigned. */
static inline __attribute__((always_inline)) int bias_of(const struct matmul_form f)
{
    return f.levels == LEVELS_IQ4 ? 128 : f.levels == LEVELS_FP4 ? 12 : f.offset;
}

/* Whether sums of 128 k times small integers are below 2^24: floats hold them exactly, and multiply
 * and add at once. */
static inline __attribute__((always_inline)) bool float_sums(const struct matmul_form f)
{
    const int s = f.sub == SUB_SCALE_MIN ? 63 : f.sub == SUB_HALVES_MIN ? 15 : 32;
    const int level = (1 << f.bits) - 1;
    if (f.sub == SUB_NONE || f.levels != LEVELS_LINEAR || f.bits == 6) return false;
    return 128 * 127 * level * s < 1 << 24;
}

#endif
