/* SPDX-License-Identifier: MIT
 * gdn_open_chunk on Hopper, from part to part of a sequence: own = transfer * the own before + own.
 *
 * A block has 16 columns of a value head's states, a warp 16 rows of them; factors are pairs of
 * bf16 (x = high + low), sums float32.  Of a transfer's rows a lane has four columns at a time,
 * which are the mma's k 2t, 2t + 1, 2t + 8 and 2t + 9: any order will do that both factors have.
 * The next part's are asked for when this one's are used up.  Each part is 64 KiB for every block:
 * some 0.8 us of the second cache for 64 blocks.
 */
#include "backends/cuda/device/gdn_wgmma.cuh"

namespace {

enum { COLUMNS = QRN_GDN_WGMMA_JOINED, TILES = COLUMNS / 8, STEPS = WIDTH / 16 };

/* A state's columns, turned; rows are 288 bytes apart: no bank conflicts. */
struct turned {
    uint16_t x[COLUMNS][WIDTH + 16];
    __device__ __forceinline__ uint16_t *at(int column, int k) { return &x[column][k]; }
};

struct joiner {
    float4 m[STEPS][2]; /* of rows lane / 4 and 8 below */
    float x[TILES][4];

    static __device__ __forceinline__ int row()
    {
        return 16 * qrn_warp() + qrn_lane() / 4;
    }
    __device__ __forceinline__ void load(int step, const float *transfer)
    {
        const float *from = transfer + row() * WIDTH + 16 * step + qrn_lane() % 4 * 4;
        m[step][0] = *(const float4 *)from;
        m[step][1] = *(const float4 *)(from + 8 * WIDTH);
    }

    /* Own columns, from `first` on. */
    __device__ __forceinline__ float *own_at(float *own, int first, int i) const
    {
        return own + (row() + i % 2 * 8) * WIDTH + first + i / 2 * 8 + qrn_lane() % 4 * 2;
    }
    __device__ __forceinline__ void load_own(float (&to)[TILES][4], float *own, int first) const
    {
#pragma unroll
        for (int i = 0; i < 2 * TILES; i++) {
            const float2 v = *(const float2 *)own_at(own, first, i);
            to[i / 2][i % 2 * 2] = v.x, to[i / 2][i % 2 * 2 + 1] = v.y;
        }
    }
    __device__ __forceinline__ void store_own(float *own, int first) const
    {
#pragma unroll
        for (int i = 0; i < 2 * TILES; i++)
            *(float2 *)own_at(own, first, i) =
                make_float2(x[i / 2][i % 2 * 2], x[i / 2][i % 2 * 2 + 1]);
    }

    __device__ __forceinline__ void hand_over(turned &high, turned &low) const
    {
#pragma unroll
        for (int i = 0; i < 2 * TILES; i++) {
            const int c = i / 2 * 8 + qrn_lane() % 4 * 2, r = row() + i % 2 * 8;
            uint32_t h, l;
            gdn_split(x[i / 2][i % 2 * 2], x[i / 2][i % 2 * 2 + 1], &h, &l);
            *high.at(c, r) = (uint16_t)h, *high.at(c + 1, r) = (uint16_t)(h >> 16);
            *low.at(c, r) = (uint16_t)l, *low.at(c + 1, r) = (uint16_t)(l >> 16);
        }
    }

    /* sum += m * what was handed over. */
    __device__ __forceinline__ void multiply(float (&sum)[TILES][4], int step, turned &high,
                                             turned &low) const
    {
        uint32_t a_high[4], a_low[4];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            gdn_split(m[step][i].x, m[step][i].y, &a_high[i], &a_low[i]);
            gdn_split(m[step][i].z, m[step][i].w, &a_high[i + 2], &a_low[i + 2]);
        }
#pragma unroll
        for (int n = 0; n < TILES; n++) {
            const int c = 8 * n + qrn_lane() / 4, k = 16 * step + qrn_lane() % 4 * 4;
            const uint2 h = *(const uint2 *)high.at(c, k), l = *(const uint2 *)low.at(c, k);
            const uint32_t b_high[2] = {h.x, h.y}, b_low[2] = {l.x, l.y};
            qrn_mma_bf16(sum[n], a_low, b_high);
            qrn_mma_bf16(sum[n], a_high, b_low);
            qrn_mma_bf16(sum[n], a_high, b_high);
        }
    }
};

} // namespace

QRN_DEVICE_FUNCTION(qrn_gdn_open_join, 256, 1, qrn_gdn_wgmma_params)
{
    enum { BLOCKS = WIDTH / COLUMNS };
    __shared__ __align__(16) turned high[2], low[2];
    const int first = (int)(blockIdx.x % BLOCKS) * COLUMNS, n_joined = p.n_parts - 1;
    qrn_gdn_part *part = p.parts + (int64_t)(blockIdx.x / BLOCKS) * n_joined;
    joiner j;
    j.load_own(j.x, part->own, first);
#pragma unroll
    for (int step = 0; step < STEPS; step++) j.load(step, part[1].transfer);
    for (int n = 1; n < n_joined; n++) {
        part++;
        const float *next = part[n + 1 < n_joined].transfer;
        float sum[TILES][4];
        j.load_own(sum, part->own, first);
        j.hand_over(high[n % 2], low[n % 2]);
        __syncthreads();
#pragma unroll
        for (int step = 0; step < STEPS; step++) {
            j.multiply(sum, step, high[n % 2], low[n % 2]);
            j.load(step, next);
        }
#pragma unroll
        for (int i = 0; i < 4 * TILES; i++) j.x[i / 4][i % 4] = sum[i / 4][i % 4];
        j.store_own(part->own, first);
    }
}
