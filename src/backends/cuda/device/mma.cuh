/* SPDX-License-Identifier: MIT
 * Tensor cores and what feeds them, for sm_80 and up: mma, ldmatrix, cp.async.
 *
 * With group = lane / 4 and t = lane % 4 a lane holds
 *     of a 16 x 8 result c:     c[0], c[1] at row group, columns 2t, 2t + 1; c[2], c[3] 8
 *                               rows below
 *     of 16 x 16 halves a:      a[0] row group, columns 2t, 2t + 1; a[1] 8 rows below; a[2], a[3]
 *                               the same 8 columns to the right
 *     of 16 x 8 halves b:       b[0] rows 2t, 2t + 1 of column group; b[1] 8 rows below
 *     of 16 x 32 bytes a:       a[0] row group, columns 4t .. 4t + 3; a[1] 8 rows below; a[2], a[3]
 *                               the same 16 columns to the right
 *     of 32 x 8 bytes b:        b[0] rows 4t .. 4t + 3 of column group; b[1] 16 rows below
 *     of 16 x 8 tf32 a:         a[0] row group, column t; a[1] 8 rows below; a[2], a[3] the same 4 columns to
 *                               the right
 *     of 8 x 8 tf32 b:          b[0] row t of column group; b[1] 4 rows below
 * the first of a register in its lowest bits.  All lanes of the warp come here. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_MMA_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_MMA_CUH

#include "backends/cuda/device/numbers.cuh"
#include "backends/cuda/device/warp.cuh"

/* mma takes 10 bits behind the point of a float and forgets the rest, 2^-11 / m of it on average where m, in 1 .. 2, is
 * what stands before the exponent.  A product of two numbers of which one was multiplied by this is on average what
 * it should be, and as near to that as if both had been rounded. */
#define QRN_TF32_PAIR 1.000704f

#ifdef QRN_EMULATED
#include "emulator/mma_on_cpu.h"
#else

/* c += a b, of bf16. */
static __device__ __forceinline__ void qrn_mma_bf16(float (&c)[4], const uint32_t (&a)[4],
                                                    const uint32_t (&b)[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* c += a b, of f16. */
static __device__ __forceinline__ void qrn_mma_f16(float (&c)[4], const uint32_t (&a)[4],
                                                   const uint32_t (&b)[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* c += a b, of floats as tf32. */
static __device__ __forceinline__ void qrn_mma_tf32(float (&c)[4], const float (&a)[4],
                                                    const float (&b)[2])
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])),
                   "r"(__float_as_uint(a[2])), "r"(__float_as_uint(a[3])),
                   "r"(__float_as_uint(b[0])), "r"(__float_as_uint(b[1])));
}

/* c = a b of half as many k: registers 0 and 1 of a, 0 of b. */
static __device__ __forceinline__ void qrn_mma_f16_short(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t b)
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %7, %7, %7};"
                 : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
                 : "r"(a0), "r"(a1), "r"(b), "f"(0.0f));
}

/* c += a b, of signed bytes; exact. */
static __device__ __forceinline__ void qrn_mma_s8(int (&c)[4], const uint32_t (&a)[4],
                                                  const uint32_t (&b)[2])
{
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* The same of half as many k: registers 0 and 1 of a, 0 of b. */
static __device__ __forceinline__ void qrn_mma_s8_short(int (&c)[4], uint32_t a0, uint32_t a1, uint32_t b)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 "
                 "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(a0), "r"(a1), "r"(b));
}

static __device__ __forceinline__ uint32_t qrn_shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* Four 8 x 8 matrices of halves from shared memory: lane i gives the address of row i % 8 of matrix
 * i / 8, 16 bytes, aligned; of matrix m it gets row lane / 4, columns 2t and 2t + 1 in out[m]. */
static __device__ __forceinline__ void qrn_ldmatrix4(uint32_t (&out)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(qrn_shared_address(row))
                 : "memory");
}

/* Two of them: addresses are those of lanes 0 .. 15. */
static __device__ __forceinline__ void qrn_ldmatrix2(uint32_t (&out)[2], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(out[0]), "=r"(out[1])
                 : "r"(qrn_shared_address(row))
                 : "memory");
}

/* The same of four transposed matrices: rows 2t and 2t + 1 of column lane / 4. */
static __device__ __forceinline__ void qrn_ldmatrix4_transposed(uint32_t (&out)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(qrn_shared_address(row))
                 : "memory");
}

/* Begins to copy 16 bytes to shared memory, both aligned; of them n_bytes are read, the rest is
 * 0. */
static __device__ __forceinline__ void qrn_copy16_async(void *shared, const void *global,
                                                        int n_bytes)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(qrn_shared_address(shared)), "l"(global), "r"(n_bytes)
                 : "memory");
}

/* The same of four bytes, aligned, all of them read. */
static __device__ __forceinline__ void qrn_copy4_async(void *shared, const void *global)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;"
                 :
                 : "r"(qrn_shared_address(shared)), "l"(global)
                 : "memory");
}

/* What this thread has begun since the last call is a group; waits until all but the last n groups
 * are there.  Other threads see it after a __syncthreads. */
static __device__ __forceinline__ void qrn_copies_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int n> static __device__ __forceinline__ void qrn_copies_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory");
}

#endif
#endif
