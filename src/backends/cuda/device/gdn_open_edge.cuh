/* SPDX-License-Identifier: MIT
 * gdn_open_chunk of one token, d 128: at a chunk's edge the new state, exp(G_C) S0 and what open rows add, ascending.
 *
 * Factors come from shared memory, from where a multiprocessor has 128 bytes a clock, and a warp that reads 16 bytes a
 * thread takes four clocks even where they are the same: so a thread has eight columns, and as many rows as it has
 * registers for.  Eight by eight products take as long as their factors. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_GDN_OPEN_EDGE_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_GDN_OPEN_EDGE_CUH

#include "backends/cuda/device/gdn_open_token.cuh"
#include "backends/cuda/device/mma.cuh"

/* Of memory that another multiprocessor may have written since this one last read it. */
static __device__ __forceinline__ float4 gdn_load4(const float *p)
{
#ifdef QRN_EMULATED
    return *(const float4 *)p;
#else
    float4 x;
    asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w) : "l"(p));
    return x;
#endif
}
/* Of shared memory, asked for where it stands in the code: a compiler would ask where it is needed. */
static __device__ __forceinline__ float4 gdn_read4(const float *p)
{
#ifdef QRN_EMULATED
    return *(const float4 *)p;
#else
    float4 x;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
                 : "r"(qrn_shared_address(p)));
    return x;
#endif
}

/* Of a row, four columns and those 64 further. */
struct gdn_edge_columns {
    float x[8];

    __device__ __forceinline__ void set(const float4 &a, const float4 &b)
    {
        x[0] = a.x, x[1] = a.y, x[2] = a.z, x[3] = a.w, x[4] = b.x, x[5] = b.y, x[6] = b.z, x[7] = b.w;
    }
    __device__ __forceinline__ void load(const float *p) { set(gdn_load4(p), gdn_load4(p + TOKEN_D / 2)); }
    __device__ __forceinline__ void take(const float *p) { set(gdn_read4(p), gdn_read4(p + TOKEN_D / 2)); }
    __device__ __forceinline__ void store(float *p) const
    {
        *(float4 *)p = make_float4(x[0], x[1], x[2], x[3]);
        *(float4 *)(p + TOKEN_D / 2) = make_float4(x[4], x[5], x[6], x[7]);
    }
    __device__ __forceinline__ void decay(float by)
    {
#pragma unroll
        for (int i = 0; i < 8; i++) x[i] *= by;
    }
    /* There or back, so that each product has a factor with the one before: registers have two banks. */
    __device__ __forceinline__ void add(float k, const gdn_edge_columns &u, bool back)
    {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const int c = back ? 7 - i : i;
            x[c] = fmaf(k, u.x[c], x[c]);
        }
    }
};

/* What an open row adds to a thread's: eight side by side, and eight more `apart` behind those. */
template <int ROWS, int apart = 0> struct gdn_edge_row {
    gdn_edge_columns u;
    float k[ROWS];

    __device__ __forceinline__ void take(const float *key, const float *u_columns)
    {
        u.take(u_columns);
#pragma unroll
        for (int i = 0; i < ROWS; i += 4) {
            const float4 x = gdn_read4(key + i / 8 * apart + i % 8);
            k[i] = x.x, k[i + 1] = x.y, k[i + 2] = x.z, k[i + 3] = x.w;
        }
    }
    __device__ __forceinline__ void add_to(gdn_edge_columns (&made)[ROWS]) const
    {
#pragma unroll
        for (int i = 0; i < ROWS; i++) made[i].add(k[i], u, i % 2);
    }
};

/* Adds an open row to a thread's, four rows after the other: few factors at a time. */
template <int ROWS>
static __device__ __forceinline__ void gdn_edge_add(gdn_edge_columns (&made)[ROWS], const float *key, const float *u)
{
    gdn_edge_columns open;
    open.take(u);
#pragma unroll
    for (int i = 0; i < ROWS; i += 4) {
        const float4 k = *(const float4 *)(key + i);
        made[i].add(k.x, open, false);
        made[i + 1].add(k.y, open, true);
        made[i + 2].add(k.z, open, false);
        made[i + 3].add(k.w, open, true);
    }
}

#endif
