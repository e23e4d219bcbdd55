/* SPDX-License-Identifier: MIT
 * What products of packed weights with few rows of x are given on Hopper. */
#ifndef QUERN_BACKENDS_CUDA_MATMUL_STREAM_CUDA_H
#define QUERN_BACKENDS_CUDA_MATMUL_STREAM_CUDA_H

#include "backends/cuda/matmul_cuda.h"

enum {
    QRN_STREAM_PANELS = 8,  /* of a stage, at most */
    QRN_STREAM_COLUMNS = 8, /* rows of x at once, at most */
    QRN_STREAM_SUMS = 4,    /* stages whose sums may wait */
    /* At most: a warp that comes to a stage knows by one bit that the last sums in that place were taken, so
     * it must not be two rounds ahead of those that were taken before the stage was copied. */
    QRN_STREAM_STAGES = 2 * QRN_STREAM_SUMS - 1,
    QRN_STREAM_X = 144,      /* bytes of 128 k of a row of x in shared memory: codes, eight sums */
    QRN_STREAM_P = 36,       /* floats of a column's sums of a panel: of 32 rows, then d */
    QRN_STREAM_THREADS = 448 /* two blocks have 72 registers for each */
};

/* Sums of a group of 32 rows that the next block goes on with: a float's bits, and 1 << 32 once it is
 * there; 0 between launches. */
struct qrn_stream_handover {
    uint64_t sum[QRN_STREAM_COLUMNS][QRN_PANEL_ROWS];
};

struct qrn_matmul_stream_params {
    struct qrn_matmul_params job;
    uint64_t handover;          /* qrn_stream_handover of each block */
    int32_t share, n_longer;    /* panels that a block takes; blocks that take one more */
    int32_t n_panels, n_groups; /* of a group; of a matrix */
    int32_t n_stages, n_early, stage_bytes; /* n_early: before the launch before has ended */
    uint64_t end;                           /* of all matrices */
    uint32_t flip;                          /* see matmul_stream_panel.cuh */
    int32_t
        ahead; /* stages asked for beyond those that are copied before the launch before has ended */
};

#endif
