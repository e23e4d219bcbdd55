/* SPDX-License-Identifier: MIT
 * The walk that ssm_conv and ssm_conv_history share, in all their variants: channels in blocks,
 * within one the tokens of one sequence after another.  Variants give the work on the tokens of a
 * block. */
#ifndef QUERN_BACKENDS_CPU_SSM_CONV_WALK_H
#define QUERN_BACKENDS_CPU_SSM_CONV_WALK_H

#include <string.h>

#include "backends/cpu/cpu.h"
#include "base/half.h"
#include "core/gdn_layout.h"

/* Channels of a block at most, the width of the tables that it works on: long rows, which caches and
 * pages like.  Shares are cut in grains. */
enum { CONV_CHANNELS = 1024, CONV_GRAIN = 64 };

/* The tokens of one sequence, up to CONV_CHANNELS channels.  Lanes past n_channels may hold
 * anything. */
struct conv_block {
    const float *weight; /* [K][CONV_CHANNELS] */
    float *before; /* [K - 1][CONV_CHANNELS], the rows before the first token, oldest first; where
                      there are K tokens or more they may be lost */
    const void *x;       /* row t at x + t * x_stride elements */
    void *out;
    int64_t x_stride, out_stride, n_tokens, K;
    int n_channels;
};

/* One token of n channels, in place: four taps of each channel side by side, the three rows before,
 * oldest first, and where the token's x joins them, which may be the oldest. */
struct conv_token {
    const float *weight; /* [n][4] */
    const float *before[3];
    const float *x;
    float *out, *kept;
    int n;
};

/* What variants give. */
struct conv_steps {
    void (*tokens_f32)(const struct conv_block *);
    void (*tokens_bf16)(const struct conv_block *);
    /* The first channels of [n][4] floats into the columns of [4][CONV_CHANNELS]: how many, the
     * rest is turned one by one. */
    int (*turn4)(float *out, const float *rows, int n);
    void (*token)(const struct conv_token *); /* or NULL */
};

/* A lane's tables: the weights, then the rows before. */
static inline size_t conv_scratch_bytes(int64_t K, int n_threads)
{
    return (size_t)n_threads * (size_t)(2 * K - 1) * CONV_CHANNELS * sizeof(float);
}

/* Width of blocks: every lane the same number of them, if there are enough channels. */
static inline int64_t conv_width(int64_t C, int n_lanes)
{
    const int64_t each = (C + n_lanes - 1) / n_lanes;
    const int64_t n_blocks = (each + CONV_CHANNELS - 1) / CONV_CHANNELS * n_lanes;
    const int64_t width = ((C + n_blocks - 1) / n_blocks + CONV_GRAIN - 1) / CONV_GRAIN * CONV_GRAIN;
    return width < CONV_CHANNELS ? width : CONV_CHANNELS;
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
static inline void conv_turn_weights(float *out, const struct qrn_tensor *weight, int64_t c, int n,
                                     const struct conv_steps *steps)
{
    const int64_t K = weight->shape[1];
    int i = 0;
    if (K == 4 && weight->dtype == QRN_F32 && weight->stride[0] == 4)
        i = steps->turn4(out, (const float *)weight->data + c * 4, n);
    for (; i < n; i++)
        for (int64_t k = 0; k < K; k++)
            out[k * CONV_CHANNELS + i] =
                conv_load(weight, conv_at(weight, (c + i) * weight->stride[0]), k);
}

/* The K - 1 rows before absolute position p, out of the ring. */
static inline void conv_history_read(float *before, const struct qrn_ssm_conv_history_args *a,
                                     const float *ring, int64_t p, int64_t c, int n)
{
    const int64_t C = a->x.shape[1], K = a->weight.shape[1];
    for (int64_t k = 0; k < K - 1; k++, before += CONV_CHANNELS) {
        const int64_t at = p + k - (K - 1);
        if (at < 0)
            memset(before, 0, (size_t)n * sizeof *before);
        else
            memcpy(before, ring + at % a->n_history * C + c, (size_t)n * sizeof *before);
    }
}

/* The new rows into the ring; of more than it holds, the last. */
static inline void conv_history_write(const struct qrn_ssm_conv_history_args *a, float *ring,
                                      int64_t p, int64_t token, int64_t n_tokens, int64_t c, int n)
{
    const int64_t C = a->x.shape[1];
    for (int64_t t = n_tokens > a->n_history ? n_tokens - a->n_history : 0; t < n_tokens; t++) {
        const float *x = (const float *)a->x.data + (token + t) * a->x.stride[0] + c;
        float *row = ring + (p + t) % a->n_history * C + c;
        memcpy(row, x, (size_t)n * sizeof *row);
    }
}

/* Whether a token alone goes through its rows as they lie: copies into tables cost more than it does. */
static inline bool conv_history_alone(const struct qrn_ssm_conv_history_args *a, int64_t s)
{
    const int32_t *begin = a->seq_begin.data, *position = a->position.data;
    const struct qrn_tensor *w = &a->weight;
    return begin[s + 1] - begin[s] == 1 && position[s] >= 3 && w->shape[1] == 4 &&
           w->dtype == QRN_F32 && w->stride[0] == 4;
}

/* Channels c .. c + n - 1 of such a token. */
static inline void conv_history_token(const struct qrn_ssm_conv_history_args *a, int64_t s,
                                      int64_t c, int n, const struct conv_steps *steps)
{
    const int32_t *begin = a->seq_begin.data, *position = a->position.data;
    const int64_t C = a->x.shape[1], p = position[s];
    float *ring = (float *)(uintptr_t)(gdn_address(&a->history, s, 0) + a->history_offset) + c;
    struct conv_token token = {
        .weight = (const float *)a->weight.data + c * 4,
        .x = (const float *)a->x.data + begin[s] * a->x.stride[0] + c,
        .out = (float *)a->out.data + begin[s] * a->out.stride[0] + c,
        .kept = ring + p % a->n_history * C,
        .n = n,
    };
    for (int k = 0; k < 3; k++) token.before[k] = ring + (p + k - 3) % a->n_history * C;
    steps->token(&token);
}

static inline void conv_history_block(const struct qrn_ssm_conv_history_args *a, int64_t s,
                                      int64_t c, int n, float *weight,
                                      const struct conv_steps *steps)
{
    const int32_t *begin = a->seq_begin.data, *position = a->position.data;
    const int64_t K = a->weight.shape[1];
    float *ring = (float *)(uintptr_t)(gdn_address(&a->history, s, 0) + a->history_offset);
    float *before = weight + K * CONV_CHANNELS;
    const struct conv_block block = {
        .weight = weight, .before = before, .K = K, .n_channels = n,
        .n_tokens = begin[s + 1] - begin[s],
        .x = (const float *)a->x.data + begin[s] * a->x.stride[0] + c,
        .out = (float *)a->out.data + begin[s] * a->out.stride[0] + c,
        .x_stride = a->x.stride[0], .out_stride = a->out.stride[0],
    };
    if (block.n_tokens == 0) return;
    conv_history_read(before, a, ring, position[s], c, n);
    steps->tokens_f32(&block);
    conv_history_write(a, ring, position[s], begin[s], block.n_tokens, c, n);
}

static inline void ssm_conv_history_walk(const struct qrn_cpu_lane *lane,
                                         const struct qrn_ssm_conv_history_args *a,
                                         const struct conv_steps *steps)
{
    const int64_t C = a->x.shape[1], K = a->weight.shape[1], n_seqs = a->position.shape[0];
    const int64_t width = conv_width(C, lane->n), n_blocks = (C + width - 1) / width;
    float *weight = (float *)lane->scratch + lane->i * (2 * K - 1) * CONV_CHANNELS;
    int64_t begin, end, turned = -1;
    if (a->x.shape[0] == 0) return;
    qrn_cpu_share(lane, n_blocks * n_seqs, 1, &begin, &end);
    for (int64_t item = begin; item < end; item++) {
        const int64_t c = item / n_seqs * width;
        const int n = (int)(C - c < width ? C - c : width);
        if (steps->token && conv_history_alone(a, item % n_seqs)) {
            conv_history_token(a, item % n_seqs, c, n, steps);
            continue;
        }
        if (turned != c) conv_turn_weights(weight, &a->weight, c, n, steps);
        turned = c;
        conv_history_block(a, item % n_seqs, c, n, weight, steps);
    }
}

static inline size_t ssm_conv_history_scratch(const void *args, int n_threads)
{
    const struct qrn_ssm_conv_history_args *a = args;
    return conv_scratch_bytes(a->weight.shape[1], n_threads);
}

/* Row t, from channel c on, of sequence s of x or out. */
static inline void *conv_row(const struct qrn_ssm_conv_args *a, const struct qrn_tensor *t,
                             int64_t s, int64_t c)
{
    const int64_t first =
        qrn_tensor_present(&a->seq_begin) ? gdn_seq_begin(&a->seq_begin, 0, s) : s;
    return t->data ? conv_at(t, first * t->stride[0] + c) : NULL;
}

static inline void conv_state_read(float *before, const struct qrn_ssm_conv_args *a, int64_t s,
                                   int64_t c, int n)
{
    const struct qrn_tensor *t = &a->state_in;
    const int64_t K = a->weight.shape[1];
    for (int i = 0; i < n; i++) {
        const void *state = conv_at(t, s * t->stride[0] + (c + i) * t->stride[1]);
        for (int64_t k = 0; k < K - 1; k++) before[k * CONV_CHANNELS + i] = conv_load(t, state, k);
    }
}

/* Value k of the new state of channel i.  Through float and back is exact: it was bf16, or
 * float. */
static inline float conv_state_value(const struct conv_block *b, const struct qrn_tensor *x,
                                     int64_t k, int i)
{
    const int64_t row = b->n_tokens + k - (b->K - 1);
    if (row < 0) return b->before[(b->n_tokens + k) * CONV_CHANNELS + i];
    return conv_load(x, b->x, row * b->x_stride + i);
}

static inline void conv_state_write(const struct conv_block *b, const struct qrn_ssm_conv_args *a,
                                    int64_t s, int64_t c)
{
    const struct qrn_tensor *t = &a->state_out;
    for (int i = 0; i < b->n_channels; i++) {
        void *state = conv_at(t, s * t->stride[0] + (c + i) * t->stride[1]);
        for (int64_t k = 0; k < b->K - 1; k++)
            if (t->dtype == QRN_BF16)
                ((uint16_t *)state)[k] = qrn_float_to_bf16(conv_state_value(b, &a->x, k, i));
            else
                ((float *)state)[k] = conv_state_value(b, &a->x, k, i);
    }
}

static inline void conv_state_block(const struct qrn_ssm_conv_args *a, int64_t s, int64_t c, int n,
                                    float *weight, const struct conv_steps *steps)
{
    const bool ragged = qrn_tensor_present(&a->seq_begin);
    const int64_t K = a->weight.shape[1];
    float *before = weight + K * CONV_CHANNELS;
    const struct conv_block block = {
        .weight = weight,
        .before = before,
        .K = K,
        .n_channels = n,
        .n_tokens = ragged
                        ? gdn_seq_begin(&a->seq_begin, 0, s + 1) - gdn_seq_begin(&a->seq_begin, 0, s)
                        : a->x.shape[1],
        .x = conv_row(a, &a->x, s, c),
        .out = conv_row(a, &a->out, s, c),
        .x_stride = a->x.stride[ragged ? 0 : 1],
        .out_stride = a->out.stride[ragged ? 0 : 1],
    };
    conv_state_read(before, a, s, c, n);
    if (a->x.dtype == QRN_BF16)
        steps->tokens_bf16(&block);
    else
        steps->tokens_f32(&block);
    conv_state_write(&block, a, s, c);
}

static inline void ssm_conv_walk(const struct qrn_cpu_lane *lane, const struct qrn_ssm_conv_args *a,
                                 const struct conv_steps *steps)
{
    const int64_t n_seqs = a->state_in.shape[0], C = a->state_in.shape[1], K = a->weight.shape[1];
    const int64_t width = conv_width(C, lane->n), n_blocks = (C + width - 1) / width;
    float *weight = (float *)lane->scratch + lane->i * (2 * K - 1) * CONV_CHANNELS;
    int64_t begin, end, turned = -1;
    qrn_cpu_share(lane, n_blocks * n_seqs, 1, &begin, &end);
    for (int64_t item = begin; item < end; item++) {
        const int64_t c = item / n_seqs * width;
        const int n = (int)(C - c < width ? C - c : width);
        if (turned != c) conv_turn_weights(weight, &a->weight, c, n, steps);
        turned = c;
        conv_state_block(a, item % n_seqs, c, n, weight, steps);
    }
}

static inline size_t ssm_conv_scratch(const void *args, int n_threads)
{
    const struct qrn_ssm_conv_args *a = args;
    return conv_scratch_bytes(a->weight.shape[1], n_threads);
}

#endif
