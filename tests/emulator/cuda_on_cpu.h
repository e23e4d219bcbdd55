/* SPDX-License-Identifier: MIT
 * CUDA C++ for a plain C++ compiler: included before each .cu file.  What device code writes means
 * here what it means there; what is missing is added when a kernel needs it. */
#ifndef QUERN_TESTS_EMULATOR_CUDA_ON_CPU_H
#define QUERN_TESTS_EMULATOR_CUDA_ON_CPU_H

#include <cmath>
#include <cstring>

#include "emulator/device_runtime.h"

#define __global__
#define __device__
#define __host__
#define __constant__ static const
#define __shared__ static thread_local /* blocks that run together have a host's thread each */
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
#define threadIdx emulated_thread_index
#define blockIdx emulated_block_index
#define blockDim emulated_block_size
#define gridDim emulated_grid_size

/* See backends/cuda/device/kernel.cuh. */
#define QRN_DEVICE_FUNCTION(name, n_threads, n_blocks, params)                             \
    static void name(const struct params &p);                                    \
    static void invoke_##name(const void *p) { name(*(const struct params *)p); } \
    static emulated_registered registered_##name(#name, invoke_##name, sizeof(struct params)); \
    static void name(const struct params &p)
#define QRN_DEVICE_FUNCTION_EARLY QRN_DEVICE_FUNCTION
#define QRN_DEVICE_FUNCTION_LATE QRN_DEVICE_FUNCTION
#define QRN_DEVICE_FUNCTION_ALONE QRN_DEVICE_FUNCTION
#define QRN_DYNAMIC_SHARED(type, name) type *const name = (type *)emulated_dynamic_shared

struct emulated_registered {
    emulated_kernel kernel;
    emulated_registered(const char *name, void (*invoke)(const void *), size_t params_bytes)
        : kernel{name, invoke, params_bytes, nullptr}
    {
        emulated_register(&kernel);
    }
};

/* --- vectors --- */

#define EMULATED_VECTORS(T, name)                                                            \
    struct __align__(2 * sizeof(T)) name##2 { T x, y; };                                     \
    struct name##3 { T x, y, z; };                                                           \
    struct __align__(sizeof(T) < 8 ? 4 * sizeof(T) : 16) name##4 { T x, y, z, w; };          \
    static inline name##2 make_##name##2(T x, T y) { return {x, y}; }                        \
    static inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }                \
    static inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
EMULATED_VECTORS(float, float)
EMULATED_VECTORS(int, int)
EMULATED_VECTORS(unsigned, uint)
EMULATED_VECTORS(double, double)

/* --- numbers --- */

template <typename To, typename From> static inline To emulated_bits(From from)
{
    static_assert(sizeof(To) == sizeof(From), "");
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}
static inline float __uint_as_float(unsigned x) { return emulated_bits<float>(x); }
static inline float __int_as_float(int x) { return emulated_bits<float>(x); }
static inline unsigned __float_as_uint(float x) { return emulated_bits<unsigned>(x); }
static inline int __float_as_int(float x) { return emulated_bits<int>(x); }
static inline double __longlong_as_double(long long x) { return emulated_bits<double>(x); }
static inline long long __double_as_longlong(double x) { return emulated_bits<long long>(x); }

/* To the nearest, halves to even; saturated; NaN gives 0. */
static inline int __float2int_rn(float x)
{
    if (!(x == x)) return 0;
    if (x >= 2147483648.0f) return 2147483647;
    return x < -2147483648.0f ? -2147483647 - 1 : (int)std::nearbyintf(x);
}
static inline float __int2float_rn(int x) { return (float)x; }
static inline float __fmaf_rn(float x, float y, float z) { return std::fmaf(x, y, z); }
static inline float __fmul_rn(float x, float y) { return x * y; }
static inline float __fadd_rn(float x, float y) { return x + y; }
static inline float __frsqrt_rn(float x) { return 1.0f / std::sqrt(x); }
static inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
#define __expf expf
#define __logf logf
static inline float __fdividef(float x, float y) { return x / y; }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline unsigned __umulhi(unsigned x, unsigned y) { return (unsigned)((uint64_t)x * y >> 32); }
template <typename T> static inline T min(T x, T y) { return y < x ? y : x; }
template <typename T> static inline T max(T x, T y) { return x < y ? y : x; }

/* Bytes of x (0 .. 3) and y (4 .. 7), as the low three bits of each nibble of s say. */
static inline unsigned __byte_perm(unsigned x, unsigned y, unsigned s)
{
    const uint64_t both = (uint64_t)y << 32 | x;
    unsigned result = 0;
    for (int i = 0; i < 4; i++) result |= (unsigned)(both >> (8 * (s >> 4 * i & 7)) & 255) << 8 * i;
    return result;
}

/* Two signed halves times two signed bytes, the first or the last ones of b, added to c. */
static inline int __dp2a_lo(int a, int b, int c) { return c + (int16_t)a * (int8_t)b + (a >> 16) * (int8_t)(b >> 8); }
static inline int __dp2a_hi(int a, int b, int c) { return __dp2a_lo(a, b >> 16, c); }

/* Four signed bytes times four, added to c. */
static inline int __dp4a(int a, int b, int c)
{
    for (int i = 0; i < 32; i += 8) c += (int8_t)(a >> i) * (int8_t)(b >> i);
    return c;
}

/* --- memory --- */

template <typename T> static inline T __ldg(const T *p) { return *p; }
template <typename T> static inline T __ldcs(const T *p) { return *p; }
template <typename T> static inline void __stcs(T *p, T x) { *p = x; }
static inline void __threadfence() {}
static inline void __threadfence_block() {}
template <typename T> static inline T emulated_swap(T *p, T x)
{
    const T old = *p;
    *p = x;
    return old;
}
template <typename T> static inline T atomicAdd(T *p, T x) { return emulated_swap(p, (T)(*p + x)); }
template <typename T> static inline T atomicMax(T *p, T x) { return emulated_swap(p, max(*p, x)); }
template <typename T> static inline T atomicMin(T *p, T x) { return emulated_swap(p, min(*p, x)); }
static inline unsigned atomicInc(unsigned *p, unsigned most)
{
    return emulated_swap(p, *p >= most ? 0u : *p + 1);
}
template <typename T> static inline T atomicExch(T *p, T x) { return emulated_swap(p, x); }
template <typename T> static inline T atomicCAS(T *p, T expected, T x)
{
    return emulated_swap(p, *p == expected ? x : *p);
}

/* --- threads that meet --- */

#define __syncthreads emulated_sync_block
static inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    emulated_exchange(mask, "at __syncwarp", nullptr, 0);
}
static inline unsigned __activemask() { return emulated_active_lanes(); }

/* What lane `from` of the warp gave. */
template <typename T>
static inline T emulated_shuffle(unsigned mask, const char *what, T x, unsigned from)
{
    static_assert(sizeof x <= EMULATED_DEPOSIT, "");
    const unsigned char *given = emulated_exchange(mask, what, &x, sizeof x);
    if (mask >> from & 1) std::memcpy(&x, given + EMULATED_DEPOSIT * from, sizeof x);
    return x;
}

template <typename T> static inline T __shfl_sync(unsigned mask, T x, int from, int width = 32)
{
    const unsigned first = emulated_lane / (unsigned)width * (unsigned)width;
    return emulated_shuffle(mask, "at __shfl_sync", x, first + (unsigned)from % (unsigned)width);
}
template <typename T> static inline T __shfl_xor_sync(unsigned mask, T x, int bits, int width = 32)
{
    const unsigned from = emulated_lane ^ (unsigned)bits, w = (unsigned)width;
    return emulated_shuffle(mask, "at __shfl_xor_sync", x,
                            from / w > emulated_lane / w ? emulated_lane : from);
}
template <typename T> static inline T __shfl_up_sync(unsigned mask, T x, unsigned n, int width = 32)
{
    const unsigned at = emulated_lane % (unsigned)width;
    return emulated_shuffle(mask, "at __shfl_up_sync", x, at < n ? emulated_lane : emulated_lane - n);
}
template <typename T> static inline T __shfl_down_sync(unsigned mask, T x, unsigned n, int width = 32)
{
    const unsigned at = emulated_lane % (unsigned)width;
    return emulated_shuffle(mask, "at __shfl_down_sync", x,
                            at + n >= (unsigned)width ? emulated_lane : emulated_lane + n);
}

static inline unsigned __ballot_sync(unsigned mask, int predicate)
{
    const unsigned char mine = predicate != 0;
    const unsigned char *given = emulated_exchange(mask, "at a vote", &mine, 1);
    unsigned result = 0;
    for (unsigned i = 0; i < 32; i++)
        if ((mask >> i & 1) && given[EMULATED_DEPOSIT * i]) result |= 1u << i;
    return result;
}
static inline int __all_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, predicate) == mask;
}
static inline int __any_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, predicate) != 0;
}

template <typename F>
static inline unsigned emulated_reduce(unsigned mask, const char *what, unsigned x, F f)
{
    const unsigned char *given = emulated_exchange(mask, what, &x, sizeof x);
    unsigned result = 0;
    bool first = true;
    for (unsigned i = 0; i < 32; i++) {
        if (!(mask >> i & 1)) continue;
        std::memcpy(&x, given + EMULATED_DEPOSIT * i, sizeof x);
        result = first ? x : f(result, x);
        first = false;
    }
    return result;
}
static inline unsigned __reduce_add_sync(unsigned mask, unsigned x)
{
    return emulated_reduce(mask, "at __reduce_add_sync", x, [](unsigned a, unsigned b) { return a + b; });
}
static inline unsigned __reduce_max_sync(unsigned mask, unsigned x)
{
    return emulated_reduce(mask, "at __reduce_max_sync", x, [](unsigned a, unsigned b) { return a > b ? a : b; });
}
static inline int __reduce_max_sync(unsigned mask, int x)
{
    return (int)emulated_reduce(mask, "at __reduce_max_sync", (unsigned)x,
                                [](unsigned a, unsigned b) { return (int)a > (int)b ? a : b; });
}

#endif
