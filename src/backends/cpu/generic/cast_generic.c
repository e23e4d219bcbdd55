/* SPDX-License-Identifier: MIT
 * cast and copy in portable C. */
#include <string.h>

#include "backends/cpu/cast_walk.h"
#include "backends/cpu/generic/round_generic.h"

static void to_f16(const float *src, uint16_t *dst, int64_t n)
{
    for (int64_t i = 0; i < n; i++) dst[i] = qrn_float_to_f16(src[i]);
}

static void cast_run(void *lane, const void *args)
{
    cast_walk(lane, args, (struct cast_steps){to_f16, to_bf16, to_q8});
}

const struct qrn_kernel qrn_cpu_cast_generic = {
    .op = QRN_OP_cast,
    .name = "cpu.cast.generic",
    .run = cast_run,
};

static void copy_run(void *lane, const void *args)
{
    const struct qrn_copy_args *a = args;
    const struct qrn_dtype_info *type = qrn_dtype_info(a->x.dtype);
    const int64_t d = a->x.shape[a->x.n_dims - 1];
    int64_t begin, end;
    qrn_cpu_share(lane, d ? qrn_n_rows(&a->x) : 0, 1, &begin, &end);
    for (int64_t r = begin; r < end; r++)
        memcpy((char *)a->out.data +
                   qrn_row_at(&a->out, r) / type->block_elements * type->block_bytes,
               (const char *)a->x.data +
                   qrn_row_at(&a->x, r) / type->block_elements * type->block_bytes,
               (size_t)(d / type->block_elements) * (size_t)type->block_bytes);
}

const struct qrn_kernel qrn_cpu_copy_generic = {
    .op = QRN_OP_copy,
    .name = "cpu.copy.generic",
    .run = copy_run,
};
