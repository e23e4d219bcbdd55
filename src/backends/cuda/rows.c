/* SPDX-License-Identifier: MIT
 * Tensors made ready for device code. */
#include "backends/cuda/rows.h"

struct qrn_rows_shape qrn_rows_shape(const struct qrn_tensor *t)
{
    struct qrn_rows_shape s = {{1, 1, 1}, t->shape[t->n_dims - 1]};
    const int n = t->n_dims - 1;
    for (int i = 0; i < n; i++) s.n[3 - n + i] = t->shape[i];
    return s;
}

struct qrn_rows qrn_rows(const struct qrn_tensor *t)
{
    struct qrn_rows r = {.data = (uint64_t)(uintptr_t)t->data};
    if (t->n_dims == 0) return (struct qrn_rows){0};
    const struct qrn_dtype_info *type = qrn_dtype_info(t->dtype);
    const int n = t->n_dims - 1;
    for (int i = 0; i < n; i++)
        r.stride[3 - n + i] = t->stride[i] / type->block_elements * type->block_bytes;
    return r;
}

struct qrn_row_type qrn_row_type(enum qrn_dtype dtype)
{
    const struct qrn_dtype_info *type = qrn_dtype_info(dtype);
    const int shift = __builtin_ctz((unsigned)type->block_elements); /* all are powers of two */
    return (struct qrn_row_type){(int32_t)dtype, shift, type->block_bytes};
}

bool qrn_is_contiguous(const struct qrn_tensor *t)
{
    int64_t want = 1;
    for (int i = t->n_dims - 1; i >= 0; i--) {
        if (t->shape[i] > 1 && t->stride[i] != want) return false;
        want *= t->shape[i];
    }
    return true;
}

bool qrn_rows_are_aligned(const struct qrn_tensor *t)
{
    if (t->n_dims == 0) return true;
    const struct qrn_rows r = qrn_rows(t);
    const bool blocks = qrn_dtype_info(t->dtype)->block_elements > 1;
    const int64_t vector = blocks ? 4 : 4 * qrn_dtype_info(t->dtype)->block_bytes;
    for (int i = 0; i < 3; i++)
        if (r.stride[i] % vector != 0) return false;
    return r.data % (uint64_t)vector == 0 && t->shape[t->n_dims - 1] % 4 == 0;
}

int64_t qrn_one_stride(const struct qrn_rows_shape *shape, const struct qrn_rows *rows)
{
    const int64_t *n = shape->n, *stride = rows->stride;
    if (n[0] > 1 && stride[0] != n[1] * stride[1]) return 0;
    if ((n[0] > 1 || n[1] > 1) && stride[1] != n[2] * stride[2]) return 0;
    return stride[2];
}

struct qrn_cuda_grid qrn_grid_of_warps(int64_t n_warps)
{
    const int64_t most = 1 << 20, n = (n_warps + QRN_WARPS - 1) / QRN_WARPS;
    return (struct qrn_cuda_grid){.n_blocks = n < most ? n : most, .n_threads = QRN_THREADS};
}

struct qrn_cuda_grid qrn_grid_that_stays(int64_t n_warps, int64_t most)
{
    struct qrn_cuda_grid grid = qrn_grid_of_warps(n_warps);
    if (grid.n_blocks > most) grid.n_blocks = most;
    return grid;
}
