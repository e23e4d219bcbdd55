/* SPDX-License-Identifier: MIT
 * What is copied by maps in products of bf16 weights in rows: the weights; x where it lies, if it is rounded already, for one
 * matrix, and can be mapped, or rows that are rounded into scratch first, those of matrix 0, of matrix 1 .., by expert of
 * sorted slots. */
#ifndef QUERN_BACKENDS_CUDA_MATMUL_MAPS_H
#define QUERN_BACKENDS_CUDA_MATMUL_MAPS_H

#include "backends/cuda/matmul_job.h"
#include "backends/cuda/tensor_map.h"

enum { QRN_X16_BOX_K = 64 }; /* of the map's boxes */

/* The weights, box_k columns of box_rows rows of a matrix at once; the second form is for few rows of x, whose blocks each
 * read other weights. */
struct qrn_tensor_box qrn_cuda_box_of_w(const struct qrn_matmul_params *p, int box_k, int box_rows);
struct qrn_tensor_box qrn_cuda_box_of_w_once(const struct qrn_matmul_params *p, int box_k,
                                             int box_rows);
/* Whether there is such a map: of matrices at one distance, or of a single one. */
bool qrn_cuda_can_map_w(const struct qrn_matmul_params *p);

/* Rows of x as matrices, or experts, meet them. */
int64_t qrn_cuda_rows_of_x(const struct qrn_matmul_params *p);

/* Of scratch. */
size_t qrn_cuda_x16_bytes(const struct qrn_matmul_params *p);
/* Queues the rounding to memory at scratch, if need be; slots have been sorted. */
void qrn_cuda_map_x16(struct qrn_cuda_stream *s, const struct qrn_matmul_params *p,
                      CUdeviceptr scratch, int box_rows, struct qrn_tensor_map *out);

#endif
