/* SPDX-License-Identifier: MIT
 * matmul_pack for the x86 kernels: groups of 16 rows (matmul_image.h) shared by the lanes.  The file
 * that includes this has its way to write a group. */
#ifndef QUERN_BACKENDS_CPU_MATMUL_PACK_WALK_H
#define QUERN_BACKENDS_CPU_MATMUL_PACK_WALK_H

#include "backends/cpu/cpu.h"
#include "backends/cpu/matmul_image.h"

static inline int64_t pack_mlx_group(const struct qrn_matmul_pack_args *a)
{
    const bool any = a->scales.n_dims && a->w.shape[a->w.n_dims - 1] > 0;
    return any ? qrn_mlx_group(&a->w, &a->scales) : 32;
}

static inline size_t pack_output_bytes(const void *args)
{
    const struct qrn_matmul_pack_args *a = args;
    const int d = a->w.n_dims;
    return image_bytes(a->w.dtype, d > 2 ? a->w.shape[0] : 1, a->w.shape[d - 2], a->w.shape[d - 1],
                       pack_mlx_group(a));
}

static inline bool pack_supports(const void *args)
{
    const struct qrn_matmul_pack_args *a = args;
    return image_exists(a->w.dtype) &&
           (a->packed.n_dims == 0 || a->packed.n_bytes >= pack_output_bytes(a));
}

/* Writes one group of all k columns: as qrn_image_write from column 0. */
typedef void pack_write_fn(const struct qrn_weight_row *rows, int n_rows, int64_t k, uint8_t *out);

static inline void pack_walk(const struct qrn_cpu_lane *lane, const struct qrn_matmul_pack_args *a,
                             pack_write_fn *write)
{
    const int64_t n = a->w.shape[a->w.n_dims - 2], k = a->w.shape[a->w.n_dims - 1];
    const int64_t n_matrices = a->w.n_dims > 2 ? a->w.shape[0] : 1;
    const int64_t per_matrix = (n + IMAGE_ROWS - 1) / IMAGE_ROWS;
    const size_t bytes = image_group_bytes(a->w.dtype, k, pack_mlx_group(a));
    int64_t begin, end;
    if (k == 0) return;
    qrn_cpu_share(lane, n_matrices * per_matrix, 1, &begin, &end);
    for (int64_t g = begin; g < end; g++) {
        struct qrn_weight_row rows[IMAGE_ROWS];
        const int64_t n0 = g % per_matrix * IMAGE_ROWS;
        const int n_rows = (int)(n - n0 < IMAGE_ROWS ? n - n0 : IMAGE_ROWS);
        for (int r = 0; r < n_rows; r++)
            rows[r] = qrn_weight_row(&a->w, &a->scales, &a->biases, 0, g / per_matrix, n0 + r);
        write(rows, n_rows, k, (uint8_t *)a->packed.data + (size_t)g * bytes);
    }
}

#endif
