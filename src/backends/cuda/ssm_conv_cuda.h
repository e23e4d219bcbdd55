/* SPDX-License-Identifier: MIT
 * What ssm_conv and ssm_conv_history are given. */
#ifndef QUERN_BACKENDS_CUDA_SSM_CONV_CUDA_H
#define QUERN_BACKENDS_CUDA_SSM_CONV_CUDA_H

#include "backends/cuda/params_cuda.h"
#include "backends/cuda/ragged_cuda.h"

QRN_PARAMS_BEGIN

/* Tokens of a tile: of the kernels for four taps ROWS, of which all are on their way at once. VECTOR: channels of a thread. */
enum {
    QRN_CONV_TILE = 32, /* of the kernel for any taps */
    QRN_CONV_MAX_TAPS = QRN_CONV_TILE,
    QRN_CONV_ROWS_F32 = 8,
    QRN_CONV_ROWS_BF16 = 12,
    QRN_CONV_VECTOR = 4,
    QRN_CONV_THREADS = 128
};

/* Strides are in elements; of x and out of sequences (where they have a dimension of their own) and
 * of tokens, of the states of sequences and of channels. */
struct qrn_ssm_conv_params {
    const void *x, *weight, *state_in;
    void *state_out, *out;
    const uint64_t *history; /* in place of states: addresses of rings of n_history rows, */
    const int32_t *position; /* and where each sequence stands */
    struct qrn_ragged sequences;
    int64_t x_stride[2], out_stride[2], weight_stride, in_stride[2], next_stride[2];
    int64_t history_stride, history_offset, n_history;
    int64_t n_channels, n_taps;
    int64_t tiles_per_seq; /* sequences of one length; 0: they are ragged */
    int32_t tile;
    int32_t n_channel_blocks; /* that go through the channels of one tile, one after the other */
    int32_t bf16, weight_bf16;
};

QRN_PARAMS_END

#endif
