/* SPDX-License-Identifier: MIT
 * What rope and rope_multi are given. */
#ifndef QUERN_BACKENDS_CUDA_ROPE_CUDA_H
#define QUERN_BACKENDS_CUDA_ROPE_CUDA_H

#include "backends/cuda/params_cuda.h"
#include "backends/cuda/rows_cuda.h"

QRN_PARAMS_BEGIN

enum {
    QRN_ROPE_MAX_PAIRS = 512,
    QRN_ROPE_MAX_POSITION = 16777216 /* 2^24: a float holds every integer up to here */
};

/* Tensors are [n_tokens, n_heads, head_dim]. */
struct qrn_rope_params {
    struct qrn_rows x, out;
    const int32_t *positions;  /* [n_axes, n_tokens] */
    int64_t position_stride;   /* of axes, elements */
    const float *freq_factors; /* by which frequencies are divided, or NULL */
    int64_t n_tokens, n_heads, head_dim;
    int32_t n_pairs;
    int32_t second; /* a pair is (i * first, i * first + second) */
    int32_t first;
    float magnitude;  /* of cosine and sine */
    int32_t in_place; /* out is x: dimensions that stay are there */
    int32_t rest;
    /* Without freq_factors the frequency of each pair; with them theta^(2i / n_rot). */
    float wave[QRN_ROPE_MAX_PAIRS];
    uint8_t axis[QRN_ROPE_MAX_PAIRS];
    /* With freq_factors, YaRN: the frequency is f / factor * ramp + f * (1 - ramp), where ramp goes
     * from 0 at pair low to 1 within width; factor 0: it is f. */
    double factor, low, width;
};

QRN_PARAMS_END

#endif
