/* SPDX-License-Identifier: MIT
 * The walk that ssm_conv and ssm_conv_history share, in all their variants: channels in blocks, within
 * one the tokens of one sequence after another.  Variants give the work on the tokens of a block. */
#ifndef QUERN_BACKENDS_CPU_SSM_CONV_WALK_H
#define QUERN_BACKENDS_CPU_SSM_CONV_WALK_H

#include "backends/cpu/cpu.h"
#include "base/half.h"
#include "core/gdn_layout.h"

enum { CONV_CHANNELS = 64 }; /* of a block: the width of the tables that it works on */

/* The tokens of one sequence, up to CONV_CHANNELS channels.  Lanes past n_channels hold zeros. */
struct conv_block {
    const float *weight; /* [K][CONV_CHANNELS] */
    const float *before; /* [K - 1][CONV_CHANNELS], the rows before the first token, oldest first */
    const void *x;       /* row t at x + t * x_stride elements */
    void *out;
    int64_t x_stride, out_stride, n_tokens, K;
    int n_channels;
};

typedef void conv_tokens(const struct conv_block *);

/* A lane's tables: the weights, then the rows before. */
static inline size_t conv_scratch_bytes(int64_t K, int n_threads)
{
    return (size_t)n_threads * (size_t)(2 * K - 1) * CONV_CHANNELS * sizeof(float);
}

static inline float conv_load(const struct qrn_tensor *t, const void *data, int64_t i)
{
    return t->dtype == QRN_BF16 ? qrn_bf16_to_float(((const uint16_t *)data)[i])
                                : ((const float *)data)[i];
}

static inline void *conv_at(const struct qrn_tensor *t, int64_t i)
{
    return (char *)t->data + (size_t)i * (t->dtype == QRN_BF16 ? 2 : 4);
}

/* Weights of channels c .. c + n - 1, turned over: taps first. */
static inline void conv_turn_weights(float *out, const struct qrn_tensor *weight, int64_t c, int n)
{
    const int64_t K = weight->shape[1];
    for (int i = 0; i < n; i++) {
        const void *w = conv_at(weight, (c + i) * weight->stride[0]);
        for (int64_t k = 0; k < K; k++) out[k * CONV_CHANNELS + i] = conv_load(weight, w, k);
    }
    for (int64_t k = 0; k < K; k++)
        for (int i = n; i < CONV_CHANNELS; i++) out[k * CONV_CHANNELS + i] = 0.0f;
}

/* The K - 1 rows before absolute position p, out of the ring. */
static inline void conv_history_read(float *before, const struct qrn_ssm_conv_history_args *a,
                                     const float *ring, int64_t p, int64_t c, int n)
{
    const int64_t C = a->x.shape[1], K = a->weight.shape[1];
    for (int64_t k = 0; k < K - 1; k++) {
        const int64_t at = p + k - (K - 1);
        for (int i = 0; i < CONV_CHANNELS; i++)
            before[k * CONV_CHANNELS + i] = i < n && at >= 0 ? ring[at % a->n_history * C + c + i] : 0.0f;
    }
}

/* The new rows into the ring; of more than it holds, the last. */
static inline void conv_history_write(const struct qrn_ssm_conv_history_args *a, float *ring, int64_t p,
                                      int64_t token, int64_t n_tokens, int64_t c, int n)
{
    const int64_t C = a->x.shape[1];
    for (int64_t t = n_tokens > a->n_history ? n_tokens - a->n_history : 0; t < n_tokens; t++) {
        const float *x = (const float *)a->x.data + (token + t) * a->x.stride[0] + c;
        float *row = ring + (p + t) % a->n_history * C + c;
        for (int i = 0; i < n; i++) row[i] = x[i];
    }
}

static inline void ssm_conv_history_walk(const struct qrn_cpu_lane *lane,
                                         const struct qrn_ssm_conv_history_args *a, conv_tokens *tokens)
{
    const int64_t C = a->x.shape[1], K = a->weight.shape[1], n_seqs = a->position.shape[0];
    const int32_t *begin = a->seq_begin.data, *position = a->position.data;
    float *weight = (float *)lane->scratch + lane->i * (2 * K - 1) * CONV_CHANNELS;
    float *before = weight + K * CONV_CHANNELS;
    int64_t c_begin, c_end;
    if (a->x.shape[0] == 0) return;
    qrn_cpu_share(lane, C, CONV_CHANNELS, &c_begin, &c_end);
    for (int64_t c = c_begin; c < c_end; c += CONV_CHANNELS) {
        const int n = (int)(C - c < CONV_CHANNELS ? C - c : CONV_CHANNELS);
        conv_turn_weights(weight, &a->weight, c, n);
        for (int64_t s = 0; s < n_seqs; s++) {
            const int64_t n_tokens = begin[s + 1] - begin[s];
            if (n_tokens == 0) continue;
            float *ring = (float *)(uintptr_t)(gdn_address(&a->history, s, 0) + a->history_offset);
            conv_history_read(before, a, ring, position[s], c, n);
            const struct conv_block block = {
                .weight = weight, .before = before, .K = K, .n_tokens = n_tokens, .n_channels = n,
                .x = (const float *)a->x.data + begin[s] * a->x.stride[0] + c,
                .out = (float *)a->out.data + begin[s] * a->out.stride[0] + c,
                .x_stride = a->x.stride[0], .out_stride = a->out.stride[0],
            };
            tokens(&block);
            conv_history_write(a, ring, position[s], begin[s], n_tokens, c, n);
        }
    }
}

static inline size_t ssm_conv_history_scratch(const void *args, int n_threads)
{
    const struct qrn_ssm_conv_history_args *a = args;
    return conv_scratch_bytes(a->weight.shape[1], n_threads);
}

#endif
