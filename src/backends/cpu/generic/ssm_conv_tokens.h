/* SPDX-License-Identifier: MIT
 * The convolution of a block of channels in portable C, for both ops. */
#ifndef QUERN_SSM_CONV_TOKENS_GENERIC_H
#define QUERN_SSM_CONV_TOKENS_GENERIC_H

#include <math.h>

#include "backends/cpu/ssm_conv_walk.h"

static inline void conv_add(float *sum, const struct conv_block *b, int64_t t, int64_t k, bool bf16)
{
    const int64_t row = t + k - (b->K - 1);
    const float *w = b->weight + k * CONV_CHANNELS;
    if (row < 0) {
        const float *x = b->before + (t + k) * CONV_CHANNELS;
        for (int i = 0; i < b->n_channels; i++) sum[i] += w[i] * x[i];
    } else if (bf16) {
        const uint16_t *x = (const uint16_t *)b->x + row * b->x_stride;
        for (int i = 0; i < b->n_channels; i++) sum[i] += w[i] * qrn_bf16_to_float(x[i]);
    } else {
        const float *x = (const float *)b->x + row * b->x_stride;
        for (int i = 0; i < b->n_channels; i++) sum[i] += w[i] * x[i];
    }
}

static inline void conv_tokens_of(const struct conv_block *b, bool bf16)
{
    for (int64_t t = 0; t < b->n_tokens; t++) {
        float sum[CONV_CHANNELS];
        for (int i = 0; i < b->n_channels; i++) sum[i] = 0.0f;
        for (int64_t k = 0; k < b->K; k++) conv_add(sum, b, t, k, bf16);
        for (int i = 0; i < b->n_channels; i++) sum[i] = sum[i] / (1.0f + expf(-sum[i]));
        if (bf16) {
            uint16_t *out = (uint16_t *)b->out + t * b->out_stride;
            for (int i = 0; i < b->n_channels; i++) out[i] = qrn_float_to_bf16(sum[i]);
        } else {
            float *out = (float *)b->out + t * b->out_stride;
            for (int i = 0; i < b->n_channels; i++) out[i] = sum[i];
        }
    }
}

static void tokens_f32(const struct conv_block *b)
{
    conv_tokens_of(b, false);
}

static void tokens_bf16(const struct conv_block *b)
{
    conv_tokens_of(b, true);
}

static int turn4(float *out, const float *rows, int n)
{
    (void)out, (void)rows, (void)n;
    return 0;
}

static const struct conv_steps conv_steps = {tokens_f32, tokens_bf16, turn4, NULL};

#endif
