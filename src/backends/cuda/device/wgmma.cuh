/* SPDX-License-Identifier: MIT
 * Hopper's tensor cores, for sm_90a: products of a warpgroup (4 warps, the first of which has a number
 * that 4 divides), asynchronous, from shared memory.
 *
 * A tile in shared memory is an array of atoms of 1024 bytes, aligned to that: 8 lines of 128 bytes, whose
 * pieces of 16 bytes stand at piece ^ line (qrn_in_atom).  Two ways to fill it:
 *     by k    a line is a row of a (a column of b), 64 halves or 128 bytes of k; 8 rows an atom, the atom of
 *             the next 8 rows follows it at once
 *     by rows a line is one k, 64 rows of a (columns of b); 8 k an atom, the atom of the next 8 k follows it
 *             at once; the next 64 rows are an array of atoms of their own, `apart` bytes further
 * so that [token][element] serves as both.  One product takes 16 k of halves or 32 of bytes: by k those
 * begin 32 bytes further in the line, by rows 2048 bytes further.
 *
 * A slice is a tile by k of 16 halves alone: lines of 32 bytes, one after the other, of each eight the last four
 * with their two pieces of 16 bytes swapped (qrn_in_slice); it is aligned to 256 bytes.
 *
 * Of c, 64 x N, warp w of the warpgroup has rows 16 w .. 16 w + 15 as mma's fragments have them: c[4 j + 0, 1]
 * row lane / 4, columns 8 j + 2 (lane % 4) + 0, 1; c[4 j + 2, 3] the same 8 rows below.  Of a in
 * registers, 64 x 16 halves, a warp has its 16 rows as mma has them.
 *
 *     qrn_wgmma_fence();                registers of c and a, and shared memory, are as they shall be
 *     qrn_wgmma_bf16<N, ...>(c, a, b);  any number
 *     qrn_wgmma_commit();
 *     qrn_wgmma_wait<0>();              before c is looked at, or a and b written again
 */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_WGMMA_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_WGMMA_CUH

#include "backends/cuda/device/pipeline.cuh"

enum { QRN_ATOM = 1024, QRN_LINE = 128 };

/* Where byte x of line y stands in an array of atoms; x is below 128. */
static __device__ __forceinline__ int qrn_in_atom(int y, int x)
{
    return y * QRN_LINE + (x ^ (y & 7) << 4);
}

/* What wgmma is told of a tile: address, distance of arrays (by rows alone), distance of atoms, 128-byte
 * lines swizzled. */
static __device__ __forceinline__ uint64_t qrn_tile_by_k(const void *tile)
{
    return (uint64_t)((qrn_shared_address(tile) & 0x3ffff) >> 4) | (uint64_t)1 << 16 |
           (uint64_t)(QRN_ATOM >> 4) << 32 | (uint64_t)1 << 62;
}
static __device__ __forceinline__ uint64_t qrn_tile_by_rows(const void *tile, int apart)
{
    return (uint64_t)((qrn_shared_address(tile) & 0x3ffff) >> 4) |
           (uint64_t)((apart & 0x3ffff) >> 4) << 16 | (uint64_t)(QRN_ATOM >> 4) << 32 |
           (uint64_t)1 << 62;
}
/* Where byte x of line y stands in a slice, and what wgmma is told of one. */
static __device__ __forceinline__ int qrn_in_slice(int y, int x)
{
    return y * 32 + (x ^ (y & 4) << 2);
}
static __device__ __forceinline__ uint64_t qrn_slice_by_k(const void *slice)
{
    return (uint64_t)((qrn_shared_address(slice) & 0x3ffff) >> 4) | (uint64_t)1 << 16 |
           (uint64_t)(256 >> 4) << 32 | (uint64_t)3 << 62;
}
/* The tile n bytes further; n is a multiple of 16.  The upper word stays as it is. */
static __device__ __forceinline__ uint64_t qrn_tile_moved(uint64_t tile, int n)
{
    return (tile & ~(uint64_t)0xffffffff) | ((uint32_t)tile + (uint32_t)(n >> 4));
}

enum { QRN_BY_K = 0, QRN_BY_ROWS = 1 };

#ifdef QRN_EMULATED
#include "emulator/wgmma_on_cpu.h"
#else

static __device__ __forceinline__ void qrn_wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
static __device__ __forceinline__ void qrn_wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/* All but the last n groups are done. */
template <int n> static __device__ __forceinline__ void qrn_wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(n) : "memory");
}
/* Keeps the compiler from moving or reading c across this. */
template <int n> static __device__ __forceinline__ void qrn_wgmma_hold(float (&c)[n])
{
#pragma unroll
    for (int i = 0; i < n; i++) asm volatile("" : "+f"(c[i])::"memory");
}

template <int n> static __device__ __forceinline__ void qrn_wgmma_hold(uint32_t (&a)[n][4])
{
#pragma unroll
    for (int i = 0; i < n; i++)
        asm volatile("" : "+r"(a[i][0]), "+r"(a[i][1]), "+r"(a[i][2]), "+r"(a[i][3])::"memory");
}

/* Two floats as bf16, to the nearest; the first in the lowest bits. */
static __device__ __forceinline__ uint32_t qrn_bf16_pair(float a, float b)
{
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(b), "f"(a));
    return pair;
}

/* A transposed 8 x 8 matrix of halves: this lane has two of row lane / 4, from column 2 (lane % 4) on, before and after. */
static __device__ __forceinline__ uint32_t qrn_transpose8(uint32_t two)
{
    uint32_t x;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(x) : "r"(two));
    return x;
}

/* Four 8 x 8 matrices of halves to shared memory, the inverse of qrn_ldmatrix4_transposed: of matrix
 * m this lane has rows 2t and 2t + 1 of column lane / 4 in x[m]. */
static __device__ __forceinline__ void qrn_stmatrix4_transposed(void *row, const uint32_t (&x)[4])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                     qrn_shared_address(row)),
                 "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
                 : "memory");
}

/* Registers of c by sixteens, as text and as operands. */
#define QRN_TEXT0 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define QRN_TEXT1 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define QRN_TEXT2 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define QRN_TEXT3 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define QRN_TEXT4 "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define QRN_TEXT5 "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define QRN_TEXT6 \
    "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"
#define QRN_TEXT7 \
    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define QRN_TEXT_32 QRN_TEXT0
#define QRN_TEXT_64 QRN_TEXT0 ", " QRN_TEXT1
#define QRN_TEXT_96 QRN_TEXT_64 ", " QRN_TEXT2
#define QRN_TEXT_128 QRN_TEXT_96 ", " QRN_TEXT3
#define QRN_TEXT_160 QRN_TEXT_128 ", " QRN_TEXT4
#define QRN_TEXT_192 QRN_TEXT_160 ", " QRN_TEXT5
#define QRN_TEXT_224 QRN_TEXT_192 ", " QRN_TEXT6
#define QRN_TEXT_256 QRN_TEXT_224 ", " QRN_TEXT7
#define QRN_FOUR(i) "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3])
#define QRN_SIXTEEN(i) QRN_FOUR(i), QRN_FOUR(i + 4), QRN_FOUR(i + 8), QRN_FOUR(i + 12)
#define QRN_OUT_32 QRN_SIXTEEN(0)
#define QRN_OUT_64 QRN_SIXTEEN(0), QRN_SIXTEEN(16)
#define QRN_OUT_96 QRN_OUT_64, QRN_SIXTEEN(32)
#define QRN_OUT_128 QRN_OUT_96, QRN_SIXTEEN(48)
#define QRN_OUT_160 QRN_OUT_128, QRN_SIXTEEN(64)
#define QRN_OUT_192 QRN_OUT_160, QRN_SIXTEEN(80)
#define QRN_OUT_224 QRN_OUT_192, QRN_SIXTEEN(96)
#define QRN_OUT_256 QRN_OUT_224, QRN_SIXTEEN(112)

/* One width and type; n0 .. n6: the numbers of the operands after c. */
#define QRN_WGMMA(N, type, n0, n1, n2, n3, n4, n5, n6)                                               \
    template <int a_way, int b_way>                                                                  \
    static __device__ __forceinline__ void qrn_wgmma_##type##_##N(float (&c)[N / 2], uint64_t a,     \
                                                                  uint64_t b, int adds)              \
    {                                                                                                \
        asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, " n2 ", 0;\n"                           \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." #type "." #type               \
                     " {" QRN_TEXT_##N "}, " n0 ", " n1 ", adds, 1, 1, " n3 ", " n4 ";\n}\n"         \
                     : QRN_OUT_##N                                                                   \
                     : "l"(a), "l"(b), "r"(adds), "n"(a_way), "n"(b_way)                             \
                     : "memory");                                                                    \
    }                                                                                                \
    template <int b_way>                                                                             \
    static __device__ __forceinline__ void qrn_wgmma_##type##_##N(                                   \
        float (&c)[N / 2], const uint32_t (&a)[4], uint64_t b, int adds)                             \
    {                                                                                                \
        asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, " n5 ", 0;\n"                           \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." #type "." #type               \
                     " {" QRN_TEXT_##N "}, {" n0 ", " n1 ", " n2 ", " n3 "}, " n4                    \
                     ", adds, 1, 1, " n6 ";\n}\n"                                                    \
                     : QRN_OUT_##N                                                                   \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(adds), "n"(b_way)     \
                     : "memory");                                                                    \
    }
#define QRN_WGMMA_TYPE(type)                                                            \
    QRN_WGMMA(32, type, "%16", "%17", "%18", "%19", "%20", "%21", "%22")                \
    QRN_WGMMA(64, type, "%32", "%33", "%34", "%35", "%36", "%37", "%38")                \
    QRN_WGMMA(96, type, "%48", "%49", "%50", "%51", "%52", "%53", "%54")                \
    QRN_WGMMA(128, type, "%64", "%65", "%66", "%67", "%68", "%69", "%70")               \
    QRN_WGMMA(160, type, "%80", "%81", "%82", "%83", "%84", "%85", "%86")               \
    QRN_WGMMA(192, type, "%96", "%97", "%98", "%99", "%100", "%101", "%102")            \
    QRN_WGMMA(224, type, "%112", "%113", "%114", "%115", "%116", "%117", "%118")        \
    QRN_WGMMA(256, type, "%128", "%129", "%130", "%131", "%132", "%133", "%134")
QRN_WGMMA_TYPE(bf16)
QRN_WGMMA_TYPE(f16)

#endif

/* c = a b (adds: c += a b), 64 x N, of 16 k; a and b are tiles, filled by k or by rows, or a is in
 * registers.  The same for f16. */
#define QRN_WGMMA_WIDTHS(type)                                                                       \
    template <int N, int a_way, int b_way>                                                           \
    static __device__ __forceinline__ void qrn_wgmma_##type(float (&c)[N / 2], uint64_t a,           \
                                                            uint64_t b, int adds)                    \
    {                                                                                                \
        if constexpr (N == 32) qrn_wgmma_##type##_32<a_way, b_way>(c, a, b, adds);                   \
        else if constexpr (N == 64) qrn_wgmma_##type##_64<a_way, b_way>(c, a, b, adds);              \
        else if constexpr (N == 96) qrn_wgmma_##type##_96<a_way, b_way>(c, a, b, adds);              \
        else if constexpr (N == 128) qrn_wgmma_##type##_128<a_way, b_way>(c, a, b, adds);            \
        else if constexpr (N == 160) qrn_wgmma_##type##_160<a_way, b_way>(c, a, b, adds);            \
        else if constexpr (N == 192) qrn_wgmma_##type##_192<a_way, b_way>(c, a, b, adds);            \
        else if constexpr (N == 224) qrn_wgmma_##type##_224<a_way, b_way>(c, a, b, adds);            \
        else qrn_wgmma_##type##_256<a_way, b_way>(c, a, b, adds);                                    \
    }                                                                                                \
    template <int N, int b_way>                                                                      \
    static __device__ __forceinline__ void qrn_wgmma_##type(float (&c)[N / 2],                       \
                                                            const uint32_t (&a)[4], uint64_t b,      \
                                                            int adds)                                \
    {                                                                                                \
        if constexpr (N == 32) qrn_wgmma_##type##_32<b_way>(c, a, b, adds);                          \
        else if constexpr (N == 64) qrn_wgmma_##type##_64<b_way>(c, a, b, adds);                     \
        else if constexpr (N == 96) qrn_wgmma_##type##_96<b_way>(c, a, b, adds);                     \
        else if constexpr (N == 128) qrn_wgmma_##type##_128<b_way>(c, a, b, adds);                   \
        else if constexpr (N == 160) qrn_wgmma_##type##_160<b_way>(c, a, b, adds);                   \
        else if constexpr (N == 192) qrn_wgmma_##type##_192<b_way>(c, a, b, adds);                   \
        else if constexpr (N == 224) qrn_wgmma_##type##_224<b_way>(c, a, b, adds);                   \
        else qrn_wgmma_##type##_256<b_way>(c, a, b, adds);                                           \
    }
QRN_WGMMA_WIDTHS(bf16)
QRN_WGMMA_WIDTHS(f16)

/* c += a b, 64 x N, of a line's 64 k, both tiles by k: begun, and to be waited for. */
template <int N> static __device__ __forceinline__ void qrn_wgmma_bf16_line(float (&c)[N / 2], uint64_t a, uint64_t b)
{
    qrn_wgmma_fence();
#pragma unroll
    for (int i = 0; i < QRN_LINE; i += 32)
        qrn_wgmma_bf16<N, QRN_BY_K, QRN_BY_K>(c, qrn_tile_moved(a, i), qrn_tile_moved(b, i), 1);
    qrn_wgmma_commit();
}

#endif
