/* SPDX-License-Identifier: MIT
 * What products of packed weights with few rows of x are given on Hopper. */
#ifndef QUERN_BACKENDS_CUDA_MATMUL_STREAM_CUDA_H
#define QUERN_BACKENDS_CUDA_MATMUL_STREAM_CUDA_H

#include "backends/cuda/matmul_cuda.h"
#include "backends/cuda/params_cuda.h"

QRN_PARAMS_BEGIN

enum {
    QRN_STREAM_PANELS = 4,  /* of a stage, at most */
    QRN_STREAM_TEAM = QRN_STREAM_PANELS, /* warps that share a stage */
    QRN_STREAM_COLUMNS = 8, /* rows of x at once, at most */
    QRN_STREAM_FEW = 4,     /* two to so many: a warp multiplies two panels at once */
    QRN_STREAM_STAGES = 14, /* at most */
    QRN_STREAM_X = 144,      /* bytes of 128 k of x in shared memory, if it has one row: codes, eight sums */
    QRN_STREAM_Q8 = 148,     /* of several rows, as they are: d, sums, codes */
    QRN_STREAM_Q8_SUMS = 4,
    QRN_STREAM_Q8_CODES = 20,
    QRN_STREAM_P = 36,       /* floats of a column's sums of a panel, of 32 rows: columns begin in other banks */
    QRN_STREAM_WARPS = 12,   /* that multiply, in teams that take stages in turn */
    QRN_STREAM_TEAMS = QRN_STREAM_WARPS / QRN_STREAM_TEAM
};

/* Warps that add, after those that multiply and one that copies: four rows of x each; a block's threads. */
QRN_FORM_FUNCTION int qrn_stream_adders(int tile_rows)
{
    return tile_rows > 1 ? 2 : 1;
}
QRN_FORM_FUNCTION int qrn_stream_threads(int tile_rows)
{
    return 32 * (QRN_STREAM_WARPS + 1 + qrn_stream_adders(tile_rows));
}

/* Shared memory of products of few rows: HALF is enough for copies never to stop, those of bf16 weights the second;
 * one row has ROW, for what is copied before its turn; MOST is all there is; a block asks for ALONE at least, of which
 * no multiprocessor has room for two, or a launch that begins where another ends would have two of its equal shares
 * on one of them. */
enum {
    QRN_STREAM_HALF_SHARED = 110 * 1024,
    QRN_STREAM_ROW_SHARED = 200 * 1024,
    QRN_FEW_HALF_SHARED = 144 * 1024,
    QRN_FEW_ALONE_SHARED = 116 * 1024,
    QRN_FEW_MOST_SHARED = 220 * 1024
};

/* Floats of a stage's sums: of each panel and row of x those of its rows, then of each row of x d of its panels. */
QRN_FORM_FUNCTION int qrn_stream_stage_sums(int tile_rows)
{
    return QRN_STREAM_PANELS * tile_rows * (QRN_STREAM_P + 1);
}

/* Bytes from a row of x to the next, of several in shared memory: multiples of 16 whose words of eight rows are in banks
 * four apart. */
QRN_FORM_FUNCTION int qrn_stream_x_pitch(int n_panels)
{
    return (n_panels * QRN_STREAM_Q8 + 111) / 128 * 128 + 16;
}

/* What turns codes that were shifted up into signed levels; a parameter, so that it stays in a register. */
#define QRN_STREAM_FLIP 0x80808080u

/* Sums of a group of 32 rows that the next block goes on with: a float's bits, and 1 << 32 once it is
 * there; 0 between launches. */
struct qrn_stream_handover {
    uint64_t sum[QRN_STREAM_COLUMNS][QRN_PANEL_ROWS];
};

struct qrn_matmul_stream_params {
    struct qrn_matmul_params job;
    uint64_t handover;          /* qrn_stream_handover of each block */
    /* Of slots, tiles from job.n_slots on are those of a second product, which lies so many bytes from the first. */
    int64_t second_w, second_out;
    int32_t share, n_longer;    /* panels that a block takes; blocks that take one more */
    int32_t n_panels, n_groups; /* of a group; of a matrix */
    int32_t n_stages, stage_bytes;
    int32_t n_early, pace; /* before the launch's turn: stages copied at once, clocks from each other one to the next */
    int32_t n_asked;       /* stages that the second cache is asked for then */
    uint32_t flip;         /* see matmul_stream_panel.cuh */
    int32_t sums_at, x_at, d_at, x_pitch; /* in shared memory, which begins with the ring */
};

QRN_PARAMS_END

#endif
