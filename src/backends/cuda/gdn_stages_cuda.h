/* SPDX-License-Identifier: MIT
 * What the chunk stages of the gated delta rule are given: of each what it needs. */
#ifndef QUERN_BACKENDS_CUDA_GDN_STAGES_CUDA_H
#define QUERN_BACKENDS_CUDA_GDN_STAGES_CUDA_H

#include "backends/cuda/gdn_cuda.h"
#include "backends/cuda/params_cuda.h"

QRN_PARAMS_BEGIN

enum {
    QRN_GDN_STAGE_THREADS = 256,
    QRN_GDN_STATE_COLUMNS = 32, /* rows of the state, a block's of gdn_chunk_state */
    QRN_GDN_OUT_COLUMNS = 64    /* of out, a block's of gdn_chunk_out */
};

/* Strides of tokens (or chunks, sequences), heads and rows, in elements. */
struct qrn_gdn_stage_tensor {
    void *data;
    int64_t stride[3];
};

struct qrn_gdn_stage_params {
    struct qrn_gdn_stage_tensor q, k, v, w, u, v_new, h, out;             /* f32, or all bf16 */
    struct qrn_gdn_stage_tensor A, inverse, state_in, state_out, g, beta; /* f32 */
    struct qrn_gdn_stage_tensor G;
    struct qrn_ragged sequences;
    struct qrn_gdn_heads heads;
    int64_t d_k, d_v;
    int64_t n_chunks; /* at most so many */
    int64_t n_slices;
    float scale;
    int32_t bf16, G_f64, rest;
};

QRN_PARAMS_END

#endif
