/* SPDX-License-Identifier: MIT
 * What the joints of Gated DeltaNet are given: the convolution, l2_norm of q and k, gates; and
 * gdn_open_chunk; rms_norm. */
#ifndef QUERN_BACKENDS_CUDA_GDN_JOINTS_CUDA_H
#define QUERN_BACKENDS_CUDA_GDN_JOINTS_CUDA_H

#include "backends/cuda/gdn_gates_cuda.h"
#include "backends/cuda/gdn_open_chunk_cuda.h"
#include "backends/cuda/norm_cuda.h"
#include "backends/cuda/params_cuda.h"
#include "backends/cuda/ssm_conv_cuda.h"
#include "backends/cuda/tensor_map_cuda.h"

QRN_PARAMS_BEGIN

/* Sequences of a block, where they have a token each and are many. */
enum { QRN_GDN_INPUTS_TOGETHER = 4 };

/* Channels are heads of 128: those of q, those of k, which are normed, those of v. */
struct qrn_gdn_inputs_params {
    struct qrn_ssm_conv_params conv;
    struct qrn_gdn_gates_params gates;
    float eps, scale;      /* of l2_norm */
    int32_t n_normed;      /* channels */
    int32_t n_conv_blocks; /* the rest of the grid has gates */
    int32_t numbers_stay;  /* tables are there before what was launched before is done (launch.h) */
    int32_t rest;
    uint64_t rounded; /* bf16 [token][channel]; of qrn_gdn_prompt_inputs */
};

/* A product of floats that gates are made of: rows of weights, of each head one for a, one for b. */
struct qrn_gdn_gate_rows {
    uint64_t w, x, out;               /* w 0: a and b are in memory */
    int64_t w_row, x_row, out_row, k; /* bytes from a row to the next; elements of one */
    int32_t dtype, a, b;              /* a, b: first rows for them */
    int32_t staged_bytes; /* of a row, which is copied to shared memory whole; 0: they are read where they are */
};

/* Blocks behind those of channels have gates, and the rows that those are made of. */
struct qrn_gdn_product_inputs_params {
    struct qrn_gdn_inputs_params inputs;
    struct qrn_gdn_gate_rows rows;
};
/* Tokens and heads of a block, of four warps. */
enum { QRN_GDN_GATES_OF_BLOCK = 2 };

struct qrn_gdn_token_params {
    struct qrn_tensor_map lines; /* of 128 floats, anywhere (tensor_map.h); 32 floats of 64 of them come at once */
    struct qrn_gdn_inputs_params inputs;
    struct qrn_gdn_gate_rows rows;
    struct qrn_gdn_open_chunk_params chunk;
    int32_t early; /* numbers and weights may be read before the launch's turn */
    uint8_t rest[60];
};

/* A head's blocks are a cluster; rows of norm are those of chunk's out. */
struct qrn_gdn_token_norm_params {
    struct qrn_gdn_token_params token;
    struct qrn_rms_norm_params norm;
};
enum { QRN_GDN_TOKEN_NORM_BYTES = 640 };

QRN_PARAMS_END

#endif
