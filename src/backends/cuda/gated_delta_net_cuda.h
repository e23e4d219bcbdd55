/* SPDX-License-Identifier: MIT
 * What gated_delta_net is given. */
#ifndef QUERN_BACKENDS_CUDA_GATED_DELTA_NET_CUDA_H
#define QUERN_BACKENDS_CUDA_GATED_DELTA_NET_CUDA_H

#include "backends/cuda/gdn_cuda.h"
#include "backends/cuda/params_cuda.h"

QRN_PARAMS_BEGIN

enum {
    QRN_GDN_LANES = 8,       /* that share a row of the state */
    QRN_GDN_ROWS = 2,        /* of the state, that a lane has parts of */
    QRN_GDN_BLOCK_ROWS = 32, /* of the state */
    QRN_GDN_BLOCK_THREADS = QRN_GDN_BLOCK_ROWS / QRN_GDN_ROWS * QRN_GDN_LANES,
    QRN_GDN_TOKENS = 8 /* copied at a time */
};

/* Strides in elements, the last dimension has none. */
struct qrn_gated_delta_net_params {
    struct qrn_gdn_tokens x;
    const float *state_in;
    float *state_out;
    int64_t in_stride[3], next_stride[3];
    int64_t n_blocks; /* of rows, in a head */
    float scale;
    int32_t positive; /* the sign of g */
};

QRN_PARAMS_END

#endif
