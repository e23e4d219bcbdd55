/* SPDX-License-Identifier: MIT
 * matmul_pack for the x86 kernels: 16 rows interleaved (matmul_image.h). */
#include "backends/cpu/cpu.h"
#include "backends/cpu/matmul_image.h"

static int64_t mlx_group(const struct qrn_matmul_pack_args *a)
{
    const bool any = a->scales.n_dims && a->w.shape[a->w.n_dims - 1] > 0;
    return any ? qrn_mlx_group(&a->w, &a->scales) : 32;
}

static size_t output_bytes(const void *args)
{
    const struct qrn_matmul_pack_args *a = args;
    const int d = a->w.n_dims;
    return image_bytes(a->w.dtype, d > 2 ? a->w.shape[0] : 1, a->w.shape[d - 2], a->w.shape[d - 1],
                       mlx_group(a));
}

static bool supports(const void *args)
{
    const struct qrn_matmul_pack_args *a = args;
    return image_exists(a->w.dtype) &&
           (a->packed.n_dims == 0 || a->packed.n_bytes >= output_bytes(a));
}

static void run(void *lane, const void *args)
{
    const struct qrn_matmul_pack_args *a = args;
    const int64_t n = a->w.shape[a->w.n_dims - 2], k = a->w.shape[a->w.n_dims - 1];
    const int64_t n_matrices = a->w.n_dims > 2 ? a->w.shape[0] : 1;
    const int64_t per_matrix = (n + IMAGE_ROWS - 1) / IMAGE_ROWS;
    const size_t bytes = image_group_bytes(a->w.dtype, k, mlx_group(a));
    int64_t begin, end;
    if (k == 0) return;
    qrn_cpu_share(lane, n_matrices * per_matrix, 1, &begin, &end);
    for (int64_t g = begin; g < end; g++) {
        struct qrn_weight_row rows[IMAGE_ROWS];
        const int64_t n0 = g % per_matrix * IMAGE_ROWS;
        const int n_rows = (int)(n - n0 < IMAGE_ROWS ? n - n0 : IMAGE_ROWS);
        for (int r = 0; r < n_rows; r++)
            rows[r] = qrn_weight_row(&a->w, &a->scales, &a->biases, 0, g / per_matrix, n0 + r);
        qrn_image_write(rows, n_rows, 0, k, (char *)a->packed.data + (size_t)g * bytes);
    }
}

const struct qrn_kernel qrn_cpu_matmul_pack_interleaved = {
    .op = QRN_OP_matmul_pack,
    .name = "cpu.matmul_pack.interleaved",
    .needs = QRN_CPU_AVX2 | QRN_CPU_FMA | QRN_CPU_F16C,
    .supports = supports,
    .run = run,
    .output_bytes = output_bytes,
};
