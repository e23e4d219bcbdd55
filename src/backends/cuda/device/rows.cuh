/* SPDX-License-Identifier: MIT
 * Rows of tensors, four elements a lane: loads and stores of 16 bytes where they are aligned, of
 * single elements at ends and elsewhere; results rounded as cast rounds them.
 *
 * What is rare is a function that is called: a launch of a few blocks waits for its code to come, so what
 * it does not run must not lie between what it does. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_ROWS_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_ROWS_CUH

#include <quern/dtype.h>
#include "backends/cuda/device/numbers.cuh"
#include "backends/cuda/device/warp.cuh"
#include "backends/cuda/rows_cuda.h"

enum { QRN_PIECE = 128 }; /* elements that a warp takes at once, and a block of Q8_ACT */

/* A row's numbers in each dimension. */
struct qrn_row_place {
    int64_t i[3];
};

static __device__ __noinline__ qrn_row_place qrn_outer_place(const qrn_rows_shape &s, int64_t r)
{
    const int64_t outer = r / s.n[2], i0 = outer / s.n[1];
    return {{i0, outer - i0 * s.n[1], r - outer * s.n[2]}};
}

static __device__ __forceinline__ qrn_row_place qrn_place_of_row(const qrn_rows_shape &s, int64_t r)
{
    if (r >= s.n[2]) return qrn_outer_place(s, r);
    return {{0, 0, r}};
}

/* Where that row of a tensor is; NULL when the tensor is absent. */
static __device__ __forceinline__ char *qrn_row(const qrn_rows &t, const qrn_row_place &at)
{
    if (!t.data) return nullptr;
    return (char *)(uintptr_t)t.data + at.i[0] * t.stride[0] + at.i[1] * t.stride[1] +
           at.i[2] * t.stride[2];
}

static __device__ __forceinline__ char *qrn_row(const qrn_rows &t, const qrn_rows_shape &s, int64_t r)
{
    return qrn_row(t, qrn_place_of_row(s, r));
}

static __device__ __forceinline__ bool qrn_is_aligned(const void *p, unsigned n)
{
    return ((uintptr_t)p & (n - 1)) == 0;
}

/* At most four elements, of which n are there. */
static __device__ __noinline__ float4 qrn_load_some(const float *from, int64_t n)
{
    return make_float4(n > 0 ? from[0] : 0.0f, n > 1 ? from[1] : 0.0f, n > 2 ? from[2] : 0.0f,
                       n > 3 ? from[3] : 0.0f);
}

static __device__ __noinline__ void qrn_store_some(float *to, int64_t n, float4 x)
{
    if (n > 0) to[0] = x.x;
    if (n > 1) to[1] = x.y;
    if (n > 2) to[2] = x.z;
    if (n > 3) to[3] = x.w;
}

/* The same of 16-bit elements. */
static __device__ __noinline__ uint2 qrn_load_some(const uint16_t *from, int64_t n)
{
    return make_uint2((n > 0 ? from[0] : 0u) | (n > 1 ? (uint32_t)from[1] << 16 : 0u),
                      (n > 2 ? from[2] : 0u) | (n > 3 ? (uint32_t)from[3] << 16 : 0u));
}

static __device__ __noinline__ void qrn_store_some(uint16_t *to, int64_t n, uint2 x)
{
    if (n > 0) to[0] = (uint16_t)x.x;
    if (n > 1) to[1] = (uint16_t)(x.x >> 16);
    if (n > 2) to[2] = (uint16_t)x.y;
    if (n > 3) to[3] = (uint16_t)(x.y >> 16);
}

/* Elements i .. i + 3 of a row of d floats; 0 beyond its end. */
static __device__ __forceinline__ void qrn_load4(const float *row, int64_t i, int64_t d,
                                                 float (&out)[4])
{
    const bool whole = i + 4 <= d && qrn_is_aligned(row + i, 16);
    const float4 v = whole ? *(const float4 *)(row + i) : qrn_load_some(row + i, d - i);
    out[0] = v.x, out[1] = v.y, out[2] = v.z, out[3] = v.w;
}

static __device__ __forceinline__ void qrn_store4(float *row, int64_t i, int64_t d,
                                                  const float (&x)[4])
{
    const float4 v = make_float4(x[0], x[1], x[2], x[3]);
    if (i + 4 <= d && qrn_is_aligned(row + i, 16)) *(float4 *)(row + i) = v;
    else qrn_store_some(row + i, d - i, v);
}

/* The same of 16-bit elements, as bits. */
static __device__ __forceinline__ void qrn_load4(const uint16_t *row, int64_t i, int64_t d,
                                                 uint16_t (&out)[4])
{
    const bool whole = i + 4 <= d && qrn_is_aligned(row + i, 8);
    const uint2 v = whole ? *(const uint2 *)(row + i) : qrn_load_some(row + i, d - i);
    out[0] = (uint16_t)v.x, out[1] = (uint16_t)(v.x >> 16);
    out[2] = (uint16_t)v.y, out[3] = (uint16_t)(v.y >> 16);
}

static __device__ __forceinline__ void qrn_store4(uint16_t *row, int64_t i, int64_t d,
                                                  const uint16_t (&x)[4])
{
    const uint2 v = make_uint2(x[0] | (uint32_t)x[1] << 16, x[2] | (uint32_t)x[3] << 16);
    if (i + 4 <= d && qrn_is_aligned(row + i, 8)) *(uint2 *)(row + i) = v;
    else qrn_store_some(row + i, d - i, v);
}

/* A block's scale of its largest magnitude, and what elements are multiplied with: qrn_q8_scale of formats/q8_act.h and 1 / d,
 * to the bit, without a branch, so that several blocks go side by side.  A quotient is mended by its remainder, which no float
 * holds if the magnitude is small: such ones are scaled up. */
static __device__ __forceinline__ float qrn_q8_scale_of(float most)
{
    const float inverse = 1.0f / 127.0f, up = 0x1p64f, least = 0x1p-126f * up;
    const bool small = most < 1.0f;
    const float x = most * (small ? up : 1.0f), near = x * inverse, d = fmaf(fmaf(-127.0f, near, x), inverse, near);
    return d >= least ? d * (small ? 1.0f / up : 1.0f) : 0.0f;
}
static __device__ __forceinline__ float qrn_q8_inverse_of(float d)
{
#ifdef QRN_EMULATED
    return d > 0.0f ? 1.0f / d : 0.0f;
#else
    float near;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(near) : "f"(d));
    return d > 0.0f ? fmaf(near, fmaf(-d, near, 1.0f), near) : 0.0f;
#endif
}

/* N pieces of 128 values of a warp, as blocks of Q8_ACT to the bit of formats/q8_act.h: each lane has its four codes, all
 * lanes have d, each eighth lane the sums of its 32 codes' halves, as a word. */
template <int N> struct qrn_q8_pieces {
    uint32_t codes[N], sums[N];
    float d[N];

    __device__ __forceinline__ void round(const float (&x)[N][4])
    {
        uint32_t most[N]; /* magnitudes as integers: NaN is above infinity, infinity above what is finite */
        int sum[N];
#pragma unroll
        for (int n = 0; n < N; n++) {
            most[n] = 0;
#pragma unroll
            for (int j = 0; j < 4; j++) most[n] = max(most[n], __float_as_uint(x[n][j]) & 0x7fffffffu);
        }
#pragma unroll
        for (int n = 0; n < N; n++) most[n] = __reduce_max_sync(QRN_ALL_OF_WARP, most[n]);
#pragma unroll
        for (int n = 0; n < N; n++) {
            const float integers = 12582912.0f; /* 1.5 * 2^23: the sum's lowest byte is the integer next to what is added */
            const bool finite = most[n] < 0x7f800000u;
            uint32_t q[4];
            d[n] = qrn_q8_scale_of(__uint_as_float(most[n]));
            const float inverse = qrn_q8_inverse_of(d[n]);
#pragma unroll
            for (int j = 0; j < 4; j++) q[j] = __float_as_uint(x[n][j] * inverse + integers);
            codes[n] = __byte_perm(__byte_perm(q[0], q[1], 0x0040), __byte_perm(q[2], q[3], 0x0040), 0x5410);
            if (!finite) d[n] = __uint_as_float(0x7fc00000u), codes[n] = 0;
            sum[n] = __dp4a((int)codes[n], 0x01010101, 0);
        }
#pragma unroll
        for (int n = 0; n < N; n++) sum[n] += __shfl_xor_sync(QRN_ALL_OF_WARP, sum[n], 1);
#pragma unroll
        for (int n = 0; n < N; n++) sum[n] += __shfl_xor_sync(QRN_ALL_OF_WARP, sum[n], 2);
#pragma unroll
        for (int n = 0; n < N; n++)
            sums[n] = ((uint32_t)sum[n] & 0xffffu) | (uint32_t)__shfl_xor_sync(QRN_ALL_OF_WARP, sum[n], 4) << 16;
    }
};

/* A block of Q8_ACT from the 128 values of a warp. */
static __device__ __forceinline__ void qrn_store_q8_act(qrn_q8_act *block, const float (&x)[4])
{
    const int lane = qrn_lane();
    qrn_q8_pieces<1> piece;
    piece.round({{x[0], x[1], x[2], x[3]}});
    if (lane == 0) block->d = piece.d[0];
    if (lane % 8 == 0) ((uint32_t *)block->sum)[lane / 8] = piece.sums[0];
    ((uint32_t *)block->q)[lane] = piece.codes[0];
}

/* Elements i .. i + 3 of a row of any type that results may have; i is 4 * lane into a piece, and
 * all lanes of the warp come here. */
static __device__ __forceinline__ void qrn_store4_as(int dtype, char *row, int64_t i, int64_t d,
                                                     const float (&x)[4])
{
    if (dtype == QRN_F32) {
        qrn_store4((float *)row, i, d, x);
    } else if (dtype == QRN_Q8_ACT) {
        qrn_store_q8_act((qrn_q8_act *)row + i / QRN_PIECE, x);
    } else {
        uint16_t h[4];
#pragma unroll
        for (int j = 0; j < 4; j += 2) {
            const uint32_t two = dtype == QRN_BF16 ? qrn_bf16_of_two(x[j], x[j + 1])
                                                   : qrn_f16_of_float(x[j]) | (uint32_t)qrn_f16_of_float(x[j + 1]) << 16;
            h[j] = (uint16_t)two, h[j + 1] = (uint16_t)(two >> 16);
        }
        qrn_store4((uint16_t *)row, i, d, h);
    }
}

/* Elements i .. i + 3 of a row of f32, f16 or bf16, as floats; 0 beyond its end. */
static __device__ __forceinline__ void qrn_load4_of(int dtype, const char *row, int64_t i,
                                                    int64_t d, float (&out)[4])
{
    if (dtype == QRN_F32) {
        qrn_load4((const float *)row, i, d, out);
        return;
    }
    uint16_t h[4];
    qrn_load4((const uint16_t *)row, i, d, h);
#pragma unroll
    for (int j = 0; j < 4; j++)
        out[j] = dtype == QRN_BF16 ? qrn_float_of_bf16(h[j]) : qrn_float_of_f16(h[j]);
}

#endif
