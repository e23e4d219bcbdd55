/* SPDX-License-Identifier: MIT
 * Products that make their rows of x themselves. */
#ifndef QUERN_BACKENDS_CUDA_X_MAKER_H
#define QUERN_BACKENDS_CUDA_X_MAKER_H

#include <quern/ops.h>

#include "backends/cuda/launch.h"
#include "core/device_impl.h"
#include "backends/cuda/x_maker_cuda.h"

/* Whether making x takes a block less time than its first weights do: a piece takes 150 to 230 instructions
 * of a warp, as many as a panel of weights, and with several rows those are what the product is bound by. */
static inline bool qrn_x_is_little(int64_t n_rows, int64_t n_pieces)
{
    enum { OF_ONE = 144, OF_SEVERAL = 64 };
    return n_rows > 0 && n_rows * n_pieces <= (n_rows == 1 ? OF_ONE : OF_SEVERAL);
}

/* Rows of heads, [n, d] or [n, heads, d]; of an absent tensor nothing. */
struct qrn_x_side qrn_x_side(const struct qrn_tensor *t);
/* Sets a, b and head_pieces; false unless rows are whole pieces. */
bool qrn_x_of_sides(const struct qrn_tensor *a, const struct qrn_tensor *b,
                    struct qrn_x_maker *maker);
/* All of maker but rounded. */
bool qrn_x_of_norm(const struct qrn_rms_norm_args *args, struct qrn_x_maker *maker);
/* Whether x, as an op stores it, is what a product reads: rows of heads side by side, aligned. */
bool qrn_x_is_read(const struct qrn_tensor *x, const struct qrn_tensor *of_product);
/* Other blocks read while the first one stores: nothing that the op writes may be what it reads. */
bool qrn_x_reads_apart(const struct qrn_step *step);

/* Of calls that cuda.matmul.stream supports: whether its blocks can make x, which is of Q8_ACT, all rows
 * of it; and running them so. */
bool qrn_cuda_stream_makes(const struct qrn_matmul_args *args);
void qrn_cuda_stream_run_made(struct qrn_cuda_stream *s, const struct qrn_matmul_args *args,
                              struct qrn_x_maker maker);
/* The same of cuda.matmul.few and bf16. */
bool qrn_cuda_few_makes(const struct qrn_matmul_args *args);
void qrn_cuda_few_run_made(struct qrn_cuda_stream *s, const struct qrn_matmul_args *args,
                           struct qrn_x_maker maker);

#endif
