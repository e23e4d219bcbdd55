/* SPDX-License-Identifier: MIT
 * What argmax, top_k, moe_route and sample are given. */
#ifndef QUERN_BACKENDS_CUDA_RANKING_CUDA_H
#define QUERN_BACKENDS_CUDA_RANKING_CUDA_H

#include <stdint.h>

/* Strides in elements.  values may be NULL; found: k places of scratch for each row. */
struct qrn_ranking_params {
    const float *x;
    int32_t *ids, *found;
    float *values;
    int64_t x_stride, ids_stride, values_stride;
    int64_t n_rows, n, k;
};

struct qrn_moe_route_params {
    const float *logits;
    int32_t *ids;
    float *weights;
    int64_t logits_stride, ids_stride, weights_stride, n_tokens, n_experts, k;
    int32_t normalise;
};

struct qrn_sample_params {
    const float *logits;
    const int32_t *history; /* NULL: none */
    int32_t *id;
    float *probability; /* may be NULL */
    float *x;           /* scratch: [n], the logits after penalties */
    int32_t *counts;    /* scratch: [n] */
    int64_t n, n_history;
    uint64_t seed, position;
    float temperature, top_p, min_p, repeat_penalty, presence_penalty, frequency_penalty;
    int32_t top_k;
};

#endif
