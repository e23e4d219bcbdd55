/* SPDX-License-Identifier: MIT
 * What argmax, top_k, moe_route and sample are given. */
#ifndef QUERN_BACKENDS_CUDA_RANKING_CUDA_H
#define QUERN_BACKENDS_CUDA_RANKING_CUDA_H

#include <stdint.h>

#include "backends/cuda/params_cuda.h"

QRN_PARAMS_BEGIN

/* Strides in elements.  values may be NULL.  Scratch: k places for each row in found, n_parts ranks
 * for each row in firsts. */
struct qrn_ranking_params {
    const float *x;
    int32_t *ids, *found;
    float *values;
    int64_t x_stride, ids_stride, values_stride;
    int64_t n_rows, n, k;
    unsigned long long *firsts;
    int64_t n_parts; /* of a row, each a block's */
};

struct qrn_moe_route_params {
    const float *logits;
    int32_t *ids;
    float *weights;
    int64_t logits_stride, ids_stride, weights_stride, n_tokens, n_experts, k;
    int32_t normalise, rest;
};

/* sample: logits of a block, passes that find what filters keep. */
enum {
    QRN_SAMPLE_THREADS = 512,
    QRN_SAMPLE_PART = 4 * QRN_SAMPLE_THREADS,
    QRN_SAMPLE_PASSES = 6, /* three that count, for top_k, and three that weigh, for top_p */
    QRN_SAMPLE_BINS = 2048
};

/* Between passes: what is left to be reached, and the bits that are found of the order of the value
 * at which it is; what filters before have kept: all above last, and so many of its equals. */
struct qrn_sample_state {
    unsigned long long goal, n_equals;
    uint32_t found, last;
};

struct qrn_sample_params {
    const float *logits;
    const int32_t *history; /* NULL: none */
    int32_t *id;
    float *probability; /* may be NULL */
    /* scratch: */
    float *x;                        /* [n]: the logits after penalties */
    int32_t *counts;                 /* [n] */
    unsigned long long *bins;        /* [passes][bins] */
    struct qrn_sample_state *states; /* [passes + 1]: when a pass begins; the last: of draw */
    unsigned long long *firsts, *sums, *equals; /* [n_parts] */
    int64_t n, n_history, n_parts;
    uint64_t seed, position;
    float temperature, top_p, min_p, repeat_penalty, presence_penalty, frequency_penalty;
    int32_t top_k;
    int32_t pass, before; /* this one and that before it; -1: none */
    int32_t bits;         /* of the weight of the most probable */
};

QRN_PARAMS_END

#endif
