/* SPDX-License-Identifier: MIT
 * What comes before products of many rows: x rounded in scratch, slots sorted by expert. */
#ifndef QUERN_BACKENDS_CUDA_MATMUL_PREPARE_H
#define QUERN_BACKENDS_CUDA_MATMUL_PREPARE_H

#include "backends/cuda/matmul_job.h"

/* Scratch for rounded rows of x. */
size_t qrn_cuda_acts_bytes(const struct qrn_matmul_params *p);
/* Queues the rounding into memory at scratch, and says so in p. */
void qrn_cuda_round_x(struct qrn_cuda_stream *s, CUdeviceptr scratch, struct qrn_matmul_params *p);

/* Tiles of tile_rows rows that the product has at most; p says then how rows are cut.  By expert slots
 * are to be grouped if grouped. */
void qrn_cuda_cut_rows(struct qrn_matmul_params *p, int tile_rows, bool grouped);
size_t qrn_cuda_slots_bytes(const struct qrn_matmul_params *p); /* after cut_rows */
void qrn_cuda_sort_slots(struct qrn_cuda_stream *s, CUdeviceptr scratch,
                         struct qrn_matmul_params *p);

#endif
