/* SPDX-License-Identifier: MIT
 * What gdn_gates is given. */
#ifndef QUERN_BACKENDS_CUDA_GDN_GATES_CUDA_H
#define QUERN_BACKENDS_CUDA_GDN_GATES_CUDA_H

#include <stdint.h>

#include "backends/cuda/params_cuda.h"

QRN_PARAMS_BEGIN

/* Strides are of tokens, in elements. */
struct qrn_gdn_gates_params {
    const float *a, *b, *a_scale, *dt_bias;
    float *g, *beta;
    int64_t a_stride, b_stride, g_stride, beta_stride;
    int64_t n_tokens, n_heads;
};

QRN_PARAMS_END

#endif
