/* SPDX-License-Identifier: MIT
 * What products are given: weight matrices, each with the rows of x that it meets. */
#ifndef QUERN_BACKENDS_CUDA_MATMUL_CUDA_H
#define QUERN_BACKENDS_CUDA_MATMUL_CUDA_H

#include "backends/cuda/matmul_forms_cuda.h"
#include "backends/cuda/params_cuda.h"
#include "backends/cuda/rows_cuda.h"

QRN_PARAMS_BEGIN

/* Matrices of rows of blocks, or of scales of them; strides in bytes. */
struct qrn_matrices {
    uint64_t data;
    int64_t stride[3]; /* of dimension -4, of -3 (or expert), of rows */
    int32_t dtype, rest;
};

struct qrn_weights_params {
    struct qrn_matrices w, scales, biases; /* in rows */
    uint64_t packed;                       /* 0: in rows */
    int64_t panel_bytes, group_bytes, matrix_bytes;
    int64_t n, k;
    int32_t dtype, group; /* group: of MLX codes, else 128 */
    int32_t wide_scales;  /* packed scales of MLX codes: f32 */
    int32_t scales_dtype; /* of packed MLX codes */
};

/* Rows of x that were rounded for a product, apart: codes of a row in whole blocks of 128, one float
 * and four sums (of 32 codes; eight of 16) of each block. */
struct qrn_acts_params {
    uint64_t q, d, sums; /* int8, float, int16[8] */
    int64_t n_blocks;    /* of a row */
};

/* Rows of x that a warp meets at once in rows. */
enum { QRN_MATMUL_ROWS = 4 };

enum qrn_act_kind { QRN_ACTS_F32, QRN_ACTS_Q8, QRN_ACTS_BF16 };

struct qrn_matmul_params {
    struct qrn_weights_params w;
    struct qrn_rows_shape shape; /* how rows of x and of out are counted: by it, with d the row's */
    struct qrn_rows_shape out_shape;
    struct qrn_rows x, out;
    int32_t x_dtype, acts; /* enum qrn_act_kind */
    int32_t any_order, even_tiles; /* even_tiles: by expert */
    int64_t n_x;
    /* plain products: rows of x, batches of x, matrices along dimension -3, ratios */
    int64_t n_matrices, most_rows, m, m2, w2, r2, r3;
    /* by expert: ids 0 otherwise */
    uint64_t ids;
    int64_t ids_stride, n_slots, top_k, x_per_token; /* ids_stride in elements */
    /* by expert, grouped: slots of matrix e are slots[first[e]] .. slots[first[e + 1] - 1]; e =
     * n_matrices: those whose id is none.  tiles: (matrix, first slot) of each tile of rows, ascending.  Even ones: (matrix,
     * first slot, slots, 0), as many slots in each of a matrix's, to the next 8, those of many first. */
    uint64_t first, slots, tiles;
    int64_t n_tiles; /* tiles of rows in all, at most */
    int32_t grouped, tile_rows;
    struct qrn_acts_params acts_at; /* n_blocks 0: not rounded ahead */
};

struct qrn_matmul_pack_params {
    struct qrn_weights_params w; /* in rows; packed: where to */
    int64_t n_matrices;
};

/* Rows of a packed table, or of a table in rows. */
struct qrn_embedding_blocks_params {
    struct qrn_weights_params w;
    struct qrn_rows_shape shape; /* of out */
    struct qrn_rows out;
    uint64_t ids;
    int64_t n_blocks; /* of 32 elements, the last perhaps shorter, in all */
};

QRN_PARAMS_END

#endif
