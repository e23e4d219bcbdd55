/* SPDX-License-Identifier: MIT
 * Two bf16 in a word, for sm_90: both at once, each result rounded once; subnormal ones are numbers like others. */
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

#endif
#endif
