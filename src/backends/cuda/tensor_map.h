/* SPDX-License-Identifier: MIT
 * Maps of tensors for Hopper's bulk copies (device/pipeline.cuh). */
#ifndef QUERN_BACKENDS_CUDA_TENSOR_MAP_H
#define QUERN_BACKENDS_CUDA_TENSOR_MAP_H

#include <quern/dtype.h>

#include "backends/cuda/launch.h"
#include "backends/cuda/tensor_map_cuda.h"

/* Rows of n elements (F32, F16 or BF16) at strides, in n_matrices; what is copied at once is box_n by
 * box_rows of them, box_n elements in 128 bytes, swizzled as wgmma.cuh has them, of box_matrices one after the
 * other (then box_rows is a multiple of 8).
 *
 * The second cache fetches two lines of 128 bytes where one is asked for, unless what is copied is read once: then weights
 * are read up to 9 % faster one by one, and none is dropped before it is wanted. */
struct qrn_tensor_box {
    const void *data;
    enum qrn_dtype dtype;
    int64_t n, n_rows, n_matrices;
    int64_t row_bytes, matrix_bytes; /* from one to the next */
    int box_n, box_rows, box_matrices; /* 0: 1 */
    bool is_read_once;                 /* lines are fetched one by one */
};

/* Whether bulk copies take it: address and strides in 16 bytes, numbers below 2^32. */
bool qrn_cuda_can_map(const struct qrn_tensor_box *box);

/* Failures stay in the stream. */
void qrn_cuda_tensor_map(struct qrn_cuda_stream *s, const struct qrn_tensor_box *box,
                         struct qrn_tensor_map *out);

/* Of bf16 rows of one matrix, whose halves are a multiple of 8 each: eight of the first, eight of the second, the next eight of the
 * first ..; what is copied at once is box_n by box_rows of them, a multiple of 16, from row y of the first half on as
 * qrn_tensor_copy4(.., x, 0, 0, y / 8, ..). */
void qrn_cuda_map_halves(struct qrn_cuda_stream *s, const struct qrn_tensor_box *box,
                         struct qrn_tensor_map *out);

/* Lines of 16-bit elements, n of them in each, n_lines at line_bytes, wherever they begin: copies say the
 * address, a multiple of 64 (qrn_tensor_copy_at).  What is copied at once is 64 elements of box_lines.
 * False: the driver makes no such map. */
bool qrn_cuda_map_anywhere(struct qrn_cuda_stream *s, int64_t n, int64_t n_lines,
                           int64_t line_bytes, int box_lines, struct qrn_tensor_map *out);

#endif
