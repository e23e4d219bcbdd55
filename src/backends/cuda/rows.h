/* SPDX-License-Identifier: MIT
 * Tensors made ready for device code; how much work there is. */
#ifndef QUERN_BACKENDS_CUDA_ROWS_H
#define QUERN_BACKENDS_CUDA_ROWS_H

#include "backends/cuda/launch.h"
#include "backends/cuda/rows_cuda.h"

/* A warp takes pieces of 128 elements: 4 a lane, and a block of Q8_ACT. */
enum { QRN_PIECE = 128, QRN_WARPS = 8, QRN_THREADS = 32 * QRN_WARPS };

/* The rows of t, at most 3 dimensions of them. */
struct qrn_rows_shape qrn_rows_shape(const struct qrn_tensor *t);
/* Of an absent tensor: data is 0. */
struct qrn_rows qrn_rows(const struct qrn_tensor *t);
struct qrn_row_type qrn_row_type(enum qrn_dtype dtype);
/* Whether its elements lie one after the other. */
bool qrn_is_contiguous(const struct qrn_tensor *t);

/* Whether all rows consist of whole, aligned vectors of four elements; an absent tensor's do. */
bool qrn_rows_are_aligned(const struct qrn_tensor *t);

/* Bytes from a row to the next where they are all alike, else 0. */
int64_t qrn_one_stride(const struct qrn_rows_shape *shape, const struct qrn_rows *rows);

static inline int64_t qrn_n_rows(const struct qrn_rows_shape *s)
{
    return s->n[0] * s->n[1] * s->n[2];
}

/* How many pieces of that many n are, the last one perhaps shorter. */
static inline int64_t qrn_ceil_div(int64_t n, int64_t each)
{
    return (n + each - 1) / each;
}

static inline int64_t qrn_pieces_per_row(const struct qrn_rows_shape *s)
{
    return qrn_ceil_div(s->d, QRN_PIECE);
}

/* Blocks of QRN_WARPS warps for n_warps pieces of work; device code strides over what is left. */
struct qrn_cuda_grid qrn_grid_of_warps(int64_t n_warps);
/* The same with no more than `most` blocks, as many as multiprocessors have room for at once. */
struct qrn_cuda_grid qrn_grid_that_stays(int64_t n_warps, int64_t most);

/* Whether n pieces, or short rows, are so many that memory bounds them, not latency. */
static inline bool qrn_are_many(int64_t n, int n_multiprocessors)
{
    return n >= 64 * (int64_t)n_multiprocessors;
}

#endif
