/* SPDX-License-Identifier: MIT
 * Rows of x rounded to 8 bits for products of many rows, each with the bits of one (matmul_exact_packed.cuh), in the order in
 * which those meet them: codes as f16, and of each 128 the scale and what minima are multiplied with.  Bound by memory, a
 * warp a block of 128. */
#include "backends/cuda/device/matmul_job.cuh"
#include "backends/cuda/matmul_exact_cuda.h"

static __device__ __forceinline__ uint32_t f16_pair_of(int a, int b)
{
    return qrn_f16_of_float((float)a) | (uint32_t)qrn_f16_of_float((float)b) << 16;
}

/* Sums of x of 16 k each as f16, or of the run that ends with each 32 k as floats. */
static __device__ __forceinline__ uint32_t word_of_sums(const qrn_matmul_exact_params &p, const qrn_q8_act &x, int i)
{
    if (p.of_halves) return f16_pair_of(x.sum[2 * i], x.sum[2 * i + 1]);
    int sum = 0;
    for (int j = i / p.run * p.run; j <= i; j++) sum += x.sum[2 * j] + x.sum[2 * j + 1];
    return __float_as_uint((float)sum);
}

/* Past the last row: zeros, but for codes, of which maps say where they end. */
static __device__ __forceinline__ void clear_sums(const qrn_matmul_exact_params &p, int64_t row, int64_t panel)
{
    const int lane = qrn_lane();
    if (lane < 4) ((uint32_t *)p.sums)[(panel * p.x_apart + row) * 4 + lane] = 0;
    if (lane == 0) ((float *)p.scales)[panel * p.x_apart + row] = 0.0f;
}

QRN_DEVICE_FUNCTION(qrn_matmul_exact_x, 256, 1, qrn_matmul_exact_params)
{
    const int64_t step = (int64_t)gridDim.x * (blockDim.x / 32);
    const int lane = qrn_lane();
    __shared__ qrn_q8_act rounded[8];
    for (int64_t i = (int64_t)blockIdx.x * (blockDim.x / 32) + qrn_warp(); i < p.x_apart * p.n_panels; i += step) {
        const int64_t row = i / p.n_panels, panel = i - row * p.n_panels;
        if (row >= p.n_x) {
            clear_sums(p, row, panel);
            continue;
        }
        const qrn_tile all = {0, 0, 1};
        const char *x = qrn_x_row(p.job, qrn_row_of_tile(p.job, all, (int)row).i_x);
        const qrn_q8_act *from = (const qrn_q8_act *)x + panel;
        if (p.job.x_dtype != QRN_Q8_ACT) {
            float v[4];
            qrn_load4((const float *)x, panel * QRN_PIECE + 4 * lane, p.job.w.k, v);
            __syncwarp();
            qrn_store_q8_act(&rounded[qrn_warp()], v);
            __syncwarp();
            from = &rounded[qrn_warp()];
        }
        const int8_t *q = from->q + 4 * lane;
        ((uint2 *)p.codes)[i * 32 + lane] = make_uint2(f16_pair_of(q[0], q[1]), f16_pair_of(q[2], q[3]));
        if (lane < 4) ((uint32_t *)p.sums)[(panel * p.x_apart + row) * 4 + lane] = word_of_sums(p, *from, lane);
        if (lane == 0) ((float *)p.scales)[panel * p.x_apart + row] = from->d;
    }
}
