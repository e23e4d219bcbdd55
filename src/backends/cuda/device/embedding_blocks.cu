/* SPDX-License-Identifier: MIT
 * embedding of packed tables: a thread decodes 32 elements.  Tables are read a few
 * rows at a time: what bounds it is the launch. */
#include "backends/cuda/device/matmul_job.cuh"
#include "backends/cuda/device/panels.cuh"

QRN_DEVICE_FUNCTION(qrn_embedding_blocks, 256, 1, qrn_embedding_blocks_params)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x, per_row = (p.shape.d + 31) / 32;
    const qrn_panel_form form = qrn_panel_form_of(p.w.dtype, p.w);
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < p.n_blocks; i += step) {
        const int64_t row = i / per_row, block = i - row * per_row;
        const int32_t id = ((const int32_t *)p.ids)[row];
        float v[32];
        if (id < 0 || id >= p.w.n) {
            for (int k = 0; k < 32; k++) v[k] = __uint_as_float(0x7fc00000u);
        } else {
            qrn_block b;
            qrn_panel_block(form, qrn_panel_at(p.w, 0, id / QRN_PANEL_ROWS, block / 4), id % QRN_PANEL_ROWS,
                            (int)(block % 4), b);
#pragma unroll
            for (int k = 0; k < 32; k++) v[k] = qrn_block_value(form.f, b, k);
        }
        float *out = (float *)qrn_row(p.out, p.shape, row);
#pragma unroll
        for (int k = 0; k < 32; k += 4) {
            const float four[4] = {v[k], v[k + 1], v[k + 2], v[k + 3]};
            qrn_store4(out, 32 * block + k, p.shape.d, four);
        }
    }
}
