/* SPDX-License-Identifier: MIT
 * What moe_combine is given. */
#ifndef QUERN_BACKENDS_CUDA_MOE_COMBINE_CUDA_H
#define QUERN_BACKENDS_CUDA_MOE_COMBINE_CUDA_H

#include <stdint.h>

#include "backends/cuda/params_cuda.h"

QRN_PARAMS_BEGIN

/* Strides in elements; shared and gate may be NULL. */
struct qrn_moe_combine_params {
    const float *experts, *weights, *shared, *gate;
    float *out;
    int64_t experts_token, experts_rank, weights_stride, shared_stride, gate_stride, out_stride;
    int64_t n_tokens, k, d;
};

QRN_PARAMS_END

#endif
