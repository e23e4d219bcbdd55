/* SPDX-License-Identifier: MIT
 * What turns a pair: frequencies with YaRN, and which axis and exponent a pair of rope_multi has.
 * The kernels and the references use the same functions, so that angles are the same floats. */
#ifndef QUERN_OPS_ROPE_ANGLES_H
#define QUERN_OPS_ROPE_ANGLES_H

#include <math.h>
#include <quern/ops.h>

#define ROPE_MAX_POSITION 16777216 /* 2^24: a float holds every integer up to here */

static inline bool rope_is_scaled(const struct qrn_rope_scaling *s)
{
    return s->factor > 1.0f;
}

/* The pair index at which a wave of the original context turns b times. */
static inline double rope_yarn_index(const struct qrn_rope_scaling *s, double b, double n_rot,
                                     double theta)
{
    return n_rot * log((double)s->original_context / (b * 6.283185307179586)) / (2.0 * log(theta));
}

static inline float rope_frequency(const struct qrn_rope_scaling *s, double theta, int64_t n_rot,
                                   int64_t i, double freq_factor)
{
    const float exponent = (float)(2 * i) / (float)n_rot,
                wave = (float)pow(theta, (double)exponent);
    const double n = (double)n_rot, f = 1.0 / ((double)wave * freq_factor);
    if (!rope_is_scaled(s)) return (float)f;
    const double fast = s->beta_fast != 0.0f ? (double)s->beta_fast : 32.0;
    const double slow = s->beta_slow != 0.0f ? (double)s->beta_slow : 1.0;
    const double low = fmax(floor(rope_yarn_index(s, fast, n, theta)), 0.0);
    const double high = fmin(ceil(rope_yarn_index(s, slow, n, theta)), n - 1.0);
    const double ramp = fmin(fmax(((double)i - low) / fmax(high - low, 0.001), 0.0), 1.0);
    return (float)(f / (double)s->factor * ramp + f * (1.0 - ramp));
}

/* What cosine and sine are multiplied by. */
static inline float rope_magnitude(const struct qrn_rope_scaling *s)
{
    if (!rope_is_scaled(s)) return 1.0f;
    if (s->attention_factor != 0.0f) return s->attention_factor;
    return (float)(0.1 * log((double)s->factor) + 1.0);
}

/* The axis of pair p, and its frequency. */
static inline int rope_multi_axis(const struct qrn_rope_multi_args *a, int64_t p)
{
    const int32_t *s = a->sections;
    const int64_t total = (int64_t)s[0] + s[1] + s[2] + s[3], r = p % total;
    if (a->mode == QRN_ROPE_VISION) return p < s[0] ? 0 : 1;
    if (a->mode == QRN_ROPE_IMROPE) {
        if (r < 3 * (int64_t)s[r % 3]) return (int)(r % 3);
        return a->positions.shape[0] == 4 ? 3 : 0;
    }
    if (r < s[0]) return 0;
    if (r < (int64_t)s[0] + s[1]) return 1;
    return r < (int64_t)s[0] + s[1] + s[2] ? 2 : 3;
}

static inline float rope_multi_frequency(const struct qrn_rope_multi_args *a, int64_t n_rot,
                                         int64_t p)
{
    static const struct qrn_rope_scaling none = {0};
    if (a->mode != QRN_ROPE_VISION) return rope_frequency(&none, a->theta, n_rot, p, 1.0);
    return rope_frequency(&none, a->theta, n_rot / 2, p < a->sections[0] ? p : p - a->sections[0],
                          1.0);
}

#endif
