/* SPDX-License-Identifier: MIT
 * Two bf16, or two f16, in a word, for sm_90: both at once, each result rounded once; subnormal ones are numbers like others. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_PAIRS_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_PAIRS_CUH

#include "backends/cuda/device/wgmma.cuh"

#ifdef QRN_EMULATED

/* Number i of a pair; the host may take subnormal floats for 0, here they are what they are. */
static inline double emulated_half(uint32_t pair, int i)
{
    const uint32_t bits = pair >> 16 * i & 0xffffu;
    const double magnitude = (double)(bits & 0x7fffu) * 0x1p-133;
    if ((bits & 0x7f80u) != 0) return (double)qrn_float_of_bf16((uint16_t)bits);
    return bits & 0x8000u ? -magnitude : magnitude;
}
/* a b + c, in float64 before it is rounded. */
static inline uint32_t qrn_pair_fma(uint32_t a, uint32_t b, uint32_t c)
{
    float x[2];
    for (int i = 0; i < 2; i++)
        x[i] = (float)(emulated_half(a, i) * emulated_half(b, i) + emulated_half(c, i));
    return qrn_bf16_pair(x[0], x[1]);
}
static inline uint32_t qrn_pair_multiply(uint32_t a, uint32_t b)
{
    return qrn_pair_fma(a, b, 0x80008000u);
}
static inline uint32_t qrn_f16_pair(float a, float b)
{
    return qrn_f16_of_float(a) | (uint32_t)qrn_f16_of_float(b) << 16;
}
static inline uint32_t qrn_f16_pair_fma(uint32_t a, uint32_t b, uint32_t c)
{
    float x[2];
    for (int i = 0; i < 2; i++)
        x[i] = qrn_float_of_f16((uint16_t)(a >> 16 * i)) * qrn_float_of_f16((uint16_t)(b >> 16 * i)) +
               qrn_float_of_f16((uint16_t)(c >> 16 * i));
    return qrn_f16_pair(x[0], x[1]);
}
static inline uint32_t qrn_f16_pair_multiply(uint32_t a, uint32_t b)
{
    return qrn_f16_pair_fma(a, b, 0x80008000u);
}

#else

static __device__ __forceinline__ uint32_t qrn_pair_fma(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t x;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(x) : "r"(a), "r"(b), "r"(c));
    return x;
}
static __device__ __forceinline__ uint32_t qrn_pair_multiply(uint32_t a, uint32_t b)
{
    uint32_t x;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(x) : "r"(a), "r"(b));
    return x;
}
/* Two floats as f16, to the nearest; the first in the lowest bits. */
static __device__ __forceinline__ uint32_t qrn_f16_pair(float a, float b)
{
    uint32_t x;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(b), "f"(a));
    return x;
}
static __device__ __forceinline__ uint32_t qrn_f16_pair_fma(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t x;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(x) : "r"(a), "r"(b), "r"(c));
    return x;
}
static __device__ __forceinline__ uint32_t qrn_f16_pair_multiply(uint32_t a, uint32_t b)
{
    uint32_t x;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(x) : "r"(a), "r"(b));
    return x;
}

#endif

struct qrn_f16_pairs {
    static constexpr uint32_t SIXTEENTH = 0x2c002c00u;
    static __device__ __forceinline__ uint32_t fma(uint32_t a, uint32_t b, uint32_t c) { return qrn_f16_pair_fma(a, b, c); }
    static __device__ __forceinline__ uint32_t multiply(uint32_t a, uint32_t b) { return qrn_f16_pair_multiply(a, b); }
};

struct qrn_bf16_pairs {
    static constexpr uint32_t SIXTEENTH = 0x3d803d80u;
    static __device__ __forceinline__ uint32_t fma(uint32_t a, uint32_t b, uint32_t c) { return qrn_pair_fma(a, b, c); }
    static __device__ __forceinline__ uint32_t multiply(uint32_t a, uint32_t b) { return qrn_pair_multiply(a, b); }
};

#endif
