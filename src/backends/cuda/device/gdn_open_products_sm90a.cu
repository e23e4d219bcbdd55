/* SPDX-License-Identifier: MIT
 * gdn_open_chunk for many tokens, what does not depend on the state: products of a chunk's keys with its keys and
 * queries, of all chunks at once, once for all value heads of a key head.  A block has a chunk and key head, a thread a
 * tile of 8 rows and 4 keys, of those that reach the diagonal: 32 FMA for 12 floats from shared memory.  A
 * multiprocessor has three blocks, of which each keeps its schedulers busy for 6000 clocks. */
#include "backends/cuda/device/gdn_open_exact.cuh"

enum {
    OCTETS = GDN_CHUNK / 8,
    N_TILES = OCTETS * (OCTETS + 1) /* 2, 4, 6 .. of an octet of rows */
};

/* y[i][j] += sum over n elements, from c on, of k_s4+j x_r8+i. */
static __device__ __forceinline__ void add_four(float (&y)[8][4], const float *rows, const float *keys, int r8, int s4,
                                                int c, int n)
{
    float s[4][4];
#pragma unroll
    for (int j = 0; j < 4; j++) tile_read4(s[j], keys + (s4 + j) * TILE_KEY + tile_place(s4, c));
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float r[4];
        tile_read4(r, rows + (r8 + i) * TILE_KEY + tile_place(r8 + (i & 4), c));
#pragma unroll
        for (int e = 0; e < 4; e++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                if (e < n) y[i][j] = fmaf(s[j][e], r[e], y[i][j]);
    }
}

static __device__ __forceinline__ void multiply(float *to, const float *rows, const float *keys, int tile, int d_k)
{
    int octet = 0;
    while ((octet + 1) * (octet + 2) <= tile) octet++;
    const int r8 = 8 * octet, s4 = 4 * (tile - octet * (octet + 1));
    float y[8][4] = {};
#pragma unroll 4
    for (int c = 0; c + 4 <= d_k; c += 4) add_four(y, rows, keys, r8, s4, c, 4);
    if (d_k % 4) add_four(y, rows, keys, r8, s4, d_k & ~3, d_k % 4);
#pragma unroll
    for (int i = 0; i < 8; i++) tile_write4(to + (r8 + i) * GDN_CHUNK + s4, y[i]);
}

QRN_DEVICE_FUNCTION(qrn_gdn_open_products, 160, 3, qrn_gdn_exact_params)
{
    QRN_DYNAMIC_SHARED(float, k);
    __shared__ gdn_segment g;
    __shared__ bool exists;
    float *q = k + GDN_CHUNK * TILE_KEY;
    const int64_t number = blockIdx.x / p.c.x.heads.n_k, kh = blockIdx.x - number * p.c.x.heads.n_k;
    if (threadIdx.x == 0) {
        gdn_sequence sequence;
        int wave;
        exists = gdn_find_chunk(p.c, number, &sequence, &wave);
        if (exists) g.find(p.c, sequence, wave);
    }
    __syncthreads();
    if (!exists) return;
    tile_load(k, q, p.c, g, (int)kh, qrn_warp(), QRN_GDN_PRODUCTS_THREADS / 32);
    qrn_copies_commit();
    qrn_copies_wait<0>();
    __syncthreads();
    qrn_gdn_products *to = p.products + blockIdx.x;
    const int tile = (int)threadIdx.x;
    if (tile >= 2 * N_TILES) return;
    const bool is_k = tile < N_TILES;
    multiply(is_k ? to->kk[0] : to->kq[0], is_k ? k : q, k, is_k ? tile : tile - N_TILES, (int)p.c.x.d_k);
}
