/* SPDX-License-Identifier: MIT
 * The convolution of a block of channels in portable C, for both ops. */
#ifndef QUERN_SSM_CONV_TOKENS_GENERIC_H
#define QUERN_SSM_CONV_TOKENS_GENERIC_H

#include <math.h>

#include "backends/cpu/ssm_conv_walk.h"

static void conv_tokens_f32(const struct conv_block *b)
{
    for (int64_t t = 0; t < b->n_tokens; t++) {
        float sum[CONV_CHANNELS] = {0};
        float *out = (float *)b->out + t * b->out_stride;
        for (int64_t k = 0; k < b->K; k++) {
            const int64_t row = t + k - (b->K - 1);
            const float *x = row < 0 ? b->before + (t + k) * CONV_CHANNELS
                                     : (const float *)b->x + row * b->x_stride;
            const float *w = b->weight + k * CONV_CHANNELS;
            for (int i = 0; i < b->n_channels; i++) sum[i] += w[i] * x[i];
        }
        for (int i = 0; i < b->n_channels; i++) out[i] = sum[i] / (1.0f + expf(-sum[i]));
    }
}

#endif
