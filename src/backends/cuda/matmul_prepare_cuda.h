/* SPDX-License-Identifier: MIT
 * How slots are sorted by expert. */
#ifndef QUERN_BACKENDS_CUDA_MATMUL_PREPARE_CUDA_H
#define QUERN_BACKENDS_CUDA_MATMUL_PREPARE_CUDA_H

enum { QRN_SORT_WARPS = 8, QRN_SORT_THREADS = 32 * QRN_SORT_WARPS };

#endif
