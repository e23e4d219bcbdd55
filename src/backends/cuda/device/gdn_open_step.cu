/* SPDX-License-Identifier: MIT
 * gdn_open_chunk for few tokens: bound by reading S0, 4 * d_k * d_v bytes a head, and the open rows;
 * with few heads by what comes one after the other: the loads' latency, 128 FMA of a column, 64 of the
 * open rows.  Few heads are cut into slices of 32 columns, so that each multiprocessor has some, all of
 * whose loads are on their way at once; before its turn comes a block asks for them. */
#include "backends/cuda/device/gdn_open_step.cuh"

QRN_DEVICE_FUNCTION_EARLY(qrn_gdn_open_step_32, 128, 2, qrn_gdn_open_chunk_params)
{
    __shared__ __align__(16) step_shared<32> z;
    if (!p.numbers_stay) qrn_grid_waits();
    step_block<32, 128> block(p, z, blockIdx.x);
    if (p.numbers_stay) {
        __syncthreads();
        if (block.n_segments == 1) stepper<32, 128>(p, z, block.mine).ask();
        qrn_grid_waits();
    }
    block.work();
}

/* Blocks at once: with three, ptxas keeps registers of sm_100 in memory. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
#define WIDE_AT_ONCE 2
#else
#define WIDE_AT_ONCE 3
#endif

QRN_DEVICE_FUNCTION(qrn_gdn_open_step_128, 192, WIDE_AT_ONCE, qrn_gdn_open_chunk_params)
{
    __shared__ __align__(16) step_shared<128> z;
    step_block<128, 192>(p, z, blockIdx.x).work();
}

/* A block has a key head of a sequence, whose last two chunks of the call stay; the older one first, as
 * both may be one memory. */
QRN_DEVICE_FUNCTION(qrn_gdn_open_keep, 256, 4, qrn_gdn_open_chunk_params)
{
    const int64_t s = blockIdx.x / p.x.heads.n_k, kh = blockIdx.x - s * p.x.heads.n_k;
    gdn_sequence q;
    q.find(p, s);
    const int n_segments = q.unknown ? 0 : q.n_segments();
    const int64_t ratio = p.x.heads.n_v / p.x.heads.n_k;
    for (int wave = n_segments > 2 ? n_segments - 2 : 0; wave < n_segments; wave++) {
        gdn_segment g;
        g.find(p, q, wave);
        for (int64_t r = threadIdx.x; r < ratio; r += blockDim.x) {
            const int64_t h = p.x.heads.tiled ? kh + r * p.x.heads.n_k : kh * ratio + r;
            double sum = g.open ? g.G[h * GDN_CHUNK + g.open - 1] : 0.0;
            for (int i = 0; i < g.n; i++)
                g.G[h * GDN_CHUNK + g.open + i] = sum += (double)*gdn_at(p.x.g, g.token + i, h);
        }
        float *k = g.k + (kh * GDN_CHUNK + g.open) * p.x.d_k;
        for (int64_t i = threadIdx.x; i < g.n * p.x.d_k; i += blockDim.x)
            k[i] = gdn_at(p.x.k, g.token + i / p.x.d_k, kh)[i % p.x.d_k];
        __syncthreads();
    }
}
