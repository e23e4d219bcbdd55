/* SPDX-License-Identifier: MIT
 * Numbers: 16-bit floats to float and back, bit by bit as base/half.h has them (NaNs keep what they
 * carry), and the one exponential that all device code uses. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_NUMBERS_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_NUMBERS_CUH

#include "backends/cuda/device/kernel.cuh"

static __device__ __forceinline__ float qrn_float_of_bf16(uint16_t h)
{
    return __uint_as_float((uint32_t)h << 16);
}

static __device__ __forceinline__ uint16_t qrn_bf16_of_float(float f)
{
    const uint32_t bits = __float_as_uint(f);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((bits >> 16) | 0x40u);
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/* Of two, a in the lower half; the instruction loses what NaNs carry. */
static __device__ __forceinline__ uint32_t qrn_bf16_of_two(float a, float b)
{
#ifdef QRN_EMULATED
    return qrn_bf16_of_float(a) | (uint32_t)qrn_bf16_of_float(b) << 16;
#else
    uint32_t two;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(b), "f"(a));
    if (a != a) two = (two & 0xffff0000u) | __float_as_uint(a) >> 16 | 0x40u;
    if (b != b) two = (two & 0xffffu) | (__float_as_uint(b) & 0xffff0000u) | 0x400000u;
    return two;
#endif
}

#ifdef QRN_EMULATED
static __device__ __forceinline__ float qrn_float_of_f16(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = (h >> 10) & 31u,
                   mantissa = h & 0x3ffu;
    if (exponent == 31) return __uint_as_float(sign | 0x7f800000u | mantissa << 13);
    if (exponent) return __uint_as_float(sign | (exponent + 112u) << 23 | mantissa << 13);
    const float magnitude = (float)mantissa * 0x1p-24f;
    return sign ? -magnitude : magnitude;
}

static __device__ __forceinline__ uint16_t qrn_f16_of_float(float f)
{
    const uint32_t bits = __float_as_uint(f), sign = (bits >> 16) & 0x8000u, a = bits & 0x7fffffffu;
    if (a > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | ((a >> 13) & 0x3ffu));
    if (a >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* rounds to 65536 or more */
    if (a >= 0x38800000u) {                                  /* normal: 2^-14 and up */
        const uint32_t rounded = a + 0xfffu + ((a >> 13) & 1u);
        return (uint16_t)(sign | ((rounded - 0x38000000u) >> 13));
    }
    if (a < 0x33000000u) return (uint16_t)sign; /* below half of the least subnormal */
    const uint32_t shift = 126u - (a >> 23), m = (a & 0x7fffffu) | 0x800000u; /* 14..24 */
    const uint32_t half = 1u << (shift - 1), rest = m & ((1u << shift) - 1);
    uint32_t q = m >> shift;
    if (rest > half || (rest == half && (q & 1u))) q++;
    return (uint16_t)(sign | q);
}
#else
/* The instructions lose what NaNs carry. */
static __device__ __forceinline__ float qrn_float_of_f16(uint16_t h)
{
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
    const uint32_t nan = (uint32_t)(h & 0x8000u) << 16 | 0x7f800000u | (h & 0x3ffu) << 13;
    return (h & 0x7fffu) > 0x7c00u ? __uint_as_float(nan) : f;
}

static __device__ __forceinline__ uint16_t qrn_f16_of_float(float f)
{
    const uint32_t bits = __float_as_uint(f), a = bits & 0x7fffffffu;
    uint16_t h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
    const uint32_t nan = ((bits >> 16) & 0x8000u) | 0x7e00u | ((a >> 13) & 0x3ffu);
    return a > 0x7f800000u ? (uint16_t)nan : h;
}
#endif

/* exp(x) to about one unit of the last place: 2^n times a polynomial on [-ln 2 / 2, ln 2 / 2],
 * whose coefficients are Taylor's.  Above 88.73 infinity, below -87.33 zero, as subnormals are
 * flushed; NaN stays NaN. */
static __device__ __forceinline__ float qrn_exp(float x)
{
    const float n = rintf(x * 1.44269504f);
    const float r = fmaf(n, -1.42860677e-6f, fmaf(n, -0.693145752f, x));
    float y = 1.98412698e-4f;
    y = fmaf(y, r, 1.38888889e-3f);
    y = fmaf(y, r, 8.33333333e-3f);
    y = fmaf(y, r, 4.16666667e-2f);
    y = fmaf(y, r, 1.66666667e-1f);
    y = fmaf(y, r, 0.5f);
    y = fmaf(y * r, r, r) + 1.0f;
    if (x > 88.72283f) return __uint_as_float(0x7f800000u);
    if (x < -87.33654f) return 0.0f;
    /* 2^n in two factors: n goes to 128. */
    const int whole = __float2int_rn(n), half = whole / 2;
    y *= __uint_as_float((uint32_t)(half + 127) << 23);
    return y * __uint_as_float((uint32_t)(whole - half + 127) << 23);
}

/* 2^x, to about 2^-22 of it; below 2^-126 it is 0. */
static __device__ __forceinline__ float qrn_exp2(float x)
{
#ifdef QRN_EMULATED
    return exp2f(x);
#else
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#endif
}

/* 1 / x, to about 2^-22 of it; the inverse of 2^127 is 0. */
static __device__ __forceinline__ float qrn_near_inverse(float x)
{
#ifdef QRN_EMULATED
    return 1.0f / x;
#else
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#endif
}

/* To within 2^-21 of it; 0 below -87.33, NaN stays as it is.  In few instructions, and without a
 * branch: in a launch of a few blocks each one has to come from memory before it runs, and products have as many to make as tensor
 * cores leave time for.  -x / ln 2 is t + rest, where log2(e) is 1.44269502 + 1.926e-8. */
static __device__ __forceinline__ float qrn_sigmoid(float x)
{
    const float near = x > 80.0f ? 80.0f : x, t = near * -1.44269502f,
                rest = fmaf(near, -1.92596303e-8f, fmaf(near, -1.44269502f, -t)), y = qrn_exp2(t),
                d = 1.0f + fmaf(y * 0.693147182f, rest, y), inverse = qrn_near_inverse(d);
    const float result = t > 126.0f ? 0.0f : fmaf(fmaf(-d, inverse, 1.0f), inverse, inverse);
    return x == x ? result : x;
}

/* log(1 + exp(x)) to 1e-10 of it, in float64, of which there is little to do; NaN stays as it is.  Short and without
 * a branch, as qrn_sigmoid is: e = exp(-|x|), Taylor's; log(1 + e) = 2 atanh(e / (2 + e)). */
static __device__ __forceinline__ float qrn_softplus(float x)
{
    const double down = fabsf(x) > 110.0f ? 110.0f : fabsf(x),
                 shifted = fma(down, -1.4426950408889634, 6755399441055744.0), n = shifted - 6755399441055744.0,
                 r = fma(n, -0.6931471805599453, -down);
    double e = 1.0 / 362880.0;
    e = fma(e, r, 1.0 / 40320.0);
    e = fma(e, r, 1.0 / 5040.0);
    e = fma(e, r, 1.0 / 720.0);
    e = fma(e, r, 1.0 / 120.0);
    e = fma(e, r, 1.0 / 24.0);
    e = fma(e, r, 1.0 / 6.0);
    e = fma(e, r, 0.5);
    e = fma(e, r, 1.0);
    e = fma(e, r, 1.0);
    const uint64_t exponent = (uint64_t)__double_as_longlong(shifted) << 52;
    e = __longlong_as_double((long long)((uint64_t)__double_as_longlong(e) + exponent));
    const double d = 2.0 + e, near = qrn_near_inverse((float)d), s = e * fma(fma(-d, near, 1.0), near, near),
                 q = s * s;
    double y = 1.0 / 19.0;
    y = fma(y, q, 1.0 / 17.0);
    y = fma(y, q, 1.0 / 15.0);
    y = fma(y, q, 1.0 / 13.0);
    y = fma(y, q, 1.0 / 11.0);
    y = fma(y, q, 1.0 / 9.0);
    y = fma(y, q, 1.0 / 7.0);
    y = fma(y, q, 1.0 / 5.0);
    y = fma(y, q, 1.0 / 3.0);
    y = fma(y, q, 1.0);
    return (float)fma(2.0 * s, y, x > 0.0f ? x : 0.0);
}

static __device__ __forceinline__ float qrn_silu(float x)
{
    return x * qrn_sigmoid(x);
}

#endif
