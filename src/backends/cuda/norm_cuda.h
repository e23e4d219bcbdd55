/* SPDX-License-Identifier: MIT
 * What rms_norm and l2_norm are given. */
#ifndef QUERN_BACKENDS_CUDA_NORM_CUDA_H
#define QUERN_BACKENDS_CUDA_NORM_CUDA_H

#include "backends/cuda/params_cuda.h"
#include "backends/cuda/rows_cuda.h"

QRN_PARAMS_BEGIN

struct qrn_rms_norm_params {
    struct qrn_rows_shape shape;
    struct qrn_rows x, residual, gate, sum, out, rounded; /* all but x may be absent */
    uint64_t weight;                                      /* 0: none */
    int64_t n_rows;
    float eps;
    int32_t rounded_dtype; /* bf16 or Q8_ACT */
    int32_t weight_stays;  /* it may be read before the launch's turn, which is worth it */
    int32_t rest;
};

/* x is the sum of parts, which is stored there too. */
struct qrn_rms_norm_parts_params {
    struct qrn_rms_norm_params norm;
    uint64_t parts; /* of each a contiguous float [rows][d] */
    int64_t apart;  /* floats from one to the next */
    int32_t n_parts, rest;
};

struct qrn_l2_norm_params {
    struct qrn_rows_shape shape;
    struct qrn_rows x, out;
    int64_t n_rows;
    float eps, scale;
};

/* Rows up to this long are a warp's, longer ones a block's: the length alone decides, so that a row
 * has the same bits among any number of others. */
enum {
    QRN_NORM_WARP_ROW = 512,
    QRN_NORM_RUN = 4, /* pieces of 128 of short rows that a warp has at once where these are many */
    QRN_NORM_RUN_BLOCKS = 2,  /* of a multiprocessor then */
    QRN_NORM_WIDE_WARPS = 16, /* of a row's block: there is room for one of the next launch's beside it */
    QRN_NORM_BLOCK_ROW = 8192 /* that a block holds in registers */
};

QRN_PARAMS_END

#endif
