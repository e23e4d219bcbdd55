/* SPDX-License-Identifier: MIT
 * Sums of pieces of tiles (matmul_registers.cuh) added up, ascending; of gates and ups, with silu_mul.  A thread has some of
 * the results that one had that multiplied. */
#include "backends/cuda/device/kernel.cuh"
#include "backends/cuda/device/matmul_registers_pieces.cuh"

enum { EACH = QRN_REGISTERS_ADD, THREADS = QRN_REGISTERS_ADD_THREADS };

/* Those of a tile. */
template <int N> struct results {
    enum { APART = qrn_registers_multipliers(N), PER_TILE = APART / THREADS };
    const qrn_matmul_registers_params &p;
    const int tile, thread, first; /* of those that multiplied; its result */
    const qrn_place_of_results at;
    const qrn_blocks_of_tile blocks;
    float v[EACH];

    __device__ __forceinline__ results(const qrn_matmul_registers_params &params, int of_tile)
        : p(params), tile(of_tile), thread((int)blockIdx.x % PER_TILE * THREADS + (int)threadIdx.x),
          first((int)blockIdx.x / PER_TILE * EACH), at(thread), blocks(params, of_tile)
    {
    }
    __device__ __forceinline__ int row(int i) const { return at.first_row + first / 4 * 8 + at.row_of(i); }
    __device__ __forceinline__ int64_t n(int i) const
    {
        return (int64_t)tile * qrn_registers_weights(N) + at.of_tile + at.down_of(i);
    }
    __device__ __forceinline__ bool is_there(int i) const { return row(i) < p.job.most_rows && n(i) < p.job.w.n; }
    __device__ __forceinline__ float *out(int i) const
    {
        return (float *)(uintptr_t)p.job.out.data + row(i) * p.out_apart + n(i);
    }

    /* They go to out; those of a tile that is not in pieces are there already. */
    __device__ __forceinline__ bool add()
    {
        enum { AT_ONCE = 3 };
        if (blocks.n == 1) return false;
#pragma unroll
        for (int i = 0; i < EACH; i++) v[i] = 0.0f;
#pragma unroll 1
        for (int k = 0; k < blocks.n; k += AT_ONCE) {
            float x[AT_ONCE][EACH];
#pragma unroll
            for (int a = 0; a < AT_ONCE; a++) {
                const float *from = qrn_sums_of_piece<N>(p, tile, blocks, k + a) + first * APART + thread;
#pragma unroll
                for (int i = 0; i < EACH; i++) x[a][i] = k + a < blocks.n ? from[i * APART] : 0.0f;
            }
#pragma unroll
            for (int a = 0; a < AT_ONCE; a++)
#pragma unroll
                for (int i = 0; i < EACH; i++) v[i] += x[a][i];
        }
#pragma unroll
        for (int i = 0; i < EACH; i++)
            if (is_there(i)) *out(i) = v[i];
        return true;
    }
    __device__ __forceinline__ void load()
    {
#pragma unroll
        for (int i = 0; i < EACH; i++) v[i] = is_there(i) ? *out(i) : 0.0f;
    }
};
static_assert(EACH == 4, "");

template <int N> static __device__ __forceinline__ void registers_silu(const qrn_matmul_registers_silu_params &p)
{
    results<N> gate(p.product, (int)blockIdx.y), up(p.product, (int)(blockIdx.y + gridDim.y));
    if (!gate.add()) gate.load();
    if (!up.add()) up.load();
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        if (!gate.is_there(i)) continue;
        char *to = qrn_row(p.middle, p.shape, gate.row(i));
        const float x = qrn_silu(gate.v[i]) * up.v[i];
        if (p.is_bf16) ((uint16_t *)to)[gate.n(i)] = qrn_bf16_of_float(x);
        else ((float *)to)[gate.n(i)] = x;
    }
}

#define REGISTERS_ADD(N)                                                                             \
    QRN_DEVICE_FUNCTION(qrn_matmul_registers##N##_add, THREADS, 12, qrn_matmul_registers_params)     \
    {                                                                                                \
        results<N> r(p, (int)blockIdx.y);                                                            \
        r.add();                                                                                     \
    }                                                                                                \
    QRN_DEVICE_FUNCTION(qrn_matmul_registers##N##_silu, THREADS, 12, qrn_matmul_registers_silu_params) \
    {                                                                                                \
        registers_silu<N>(p);                                                                        \
    }
REGISTERS_ADD(32)
REGISTERS_ADD(64)
REGISTERS_ADD(128)
