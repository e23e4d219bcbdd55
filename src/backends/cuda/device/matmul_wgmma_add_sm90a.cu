/* SPDX-License-Identifier: MIT
 * Sums of parts of k of a product's last tiles (matmul_wgmma.cuh), added up in their order, and silu_mul of gates and ups.  A
 * thread has some of the results that one had that multiplied. */
#include "backends/cuda/device/matmul_wgmma.cuh"

QRN_DEVICE_FUNCTION(qrn_matmul_wgmma_add, 256, 4, qrn_matmul_wgmma_params)
{
    enum { EACH = QRN_WGMMA_ADD, APART = 256 };
    const int first = (int)blockIdx.x * EACH, lane = qrn_lane(), of_part = p.n_results * APART;
    const qrn_wgmma_work work = qrn_wgmma_work_at(p, p.n_whole + (int)blockIdx.y * p.n_parts);
    const float *from = (const float *)(uintptr_t)p.partials + (int64_t)work.part * of_part + first * APART + threadIdx.x;
    float sum[EACH];
    if (first / 4 * 8 >= work.tile.n_rows) return;
#pragma unroll
    for (int j = 0; j < EACH; j++) sum[j] = from[j * APART];
#pragma unroll 4
    for (int part = 1; part < p.n_parts; part++) {
        from += of_part;
#pragma unroll
        for (int j = 0; j < EACH; j++) sum[j] += from[j * APART];
    }
    if (p.silu.data) {
        const int gate = work.weights / 2 + qrn_warp() * 8, row = first / 4 * 8;
        const uint32_t two = qrn_silu_of_eight(sum);
        if (row + lane / 4 < work.tile.n_rows && gate < p.silu.n_gates)
            *(uint32_t *)qrn_silu_place(p.silu, work.tile.first + row, gate) = two;
        return;
    }
    const int64_t n = (int64_t)work.weights + qrn_warp() * 16 + lane / 4;
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        const int c = first + j, row = 8 * (c / 4) + lane % 4 * 2 + c % 2;
        const int64_t at = n + c % 4 / 2 * 8;
        if (row >= work.tile.n_rows || at >= p.job.w.n) continue;
        ((float *)(uintptr_t)qrn_wgmma_out_row(p, work.tile, row))[at] = sum[j];
    }
}
