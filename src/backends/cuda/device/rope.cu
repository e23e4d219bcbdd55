/* SPDX-License-Identifier: MIT
 * rope and rope_multi: a block takes a token, whose cosines and sines it works out once for all
 * heads. They are those of one float32 product, taken in float64: positions go to 2^24. */
#include "backends/cuda/device/rows.cuh"
#include "backends/cuda/rope_cuda.h"

/* As ops/rope_angles.h has it. */
static __device__ __forceinline__ float frequency(const qrn_rope_params &p, int i)
{
    if (!p.freq_factors) return p.wave[i];
    const double f = 1.0 / ((double)p.wave[i] * (double)p.freq_factors[i]);
    if (p.factor == 0.0) return (float)f;
    const double ramp = fmin(fmax(((double)i - p.low) / p.width, 0.0), 1.0);
    return (float)(f / p.factor * ramp + f * (1.0 - ramp));
}

/* A position out of range turns the pair into NaN. */
static __device__ __forceinline__ void turn(const qrn_rope_params &p, int64_t token, int i,
                                            float *cosine, float *sine)
{
    const int32_t position = p.positions[p.axis[i] * p.position_stride + token];
    if (position < 0 || position > QRN_ROPE_MAX_POSITION) {
        *cosine = *sine = __uint_as_float(0x7fc00000u);
        return;
    }
    double c, s;
    sincos((double)((float)position * frequency(p, i)), &s, &c);
    *cosine = (float)c * p.magnitude;
    *sine = (float)s * p.magnitude;
}

QRN_DEVICE_FUNCTION(qrn_rope, 256, 4, qrn_rope_params)
{
    __shared__ float cosine[QRN_ROPE_MAX_PAIRS], sine[QRN_ROPE_MAX_PAIRS];
    const int n_rot = 2 * p.n_pairs, rest = (int)p.head_dim - n_rot, n = p.n_pairs + rest;
    for (int64_t t = blockIdx.x; t < p.n_tokens; t += gridDim.x) {
        __syncthreads();
        for (int i = (int)threadIdx.x; i < p.n_pairs; i += (int)blockDim.x)
            turn(p, t, i, &cosine[i], &sine[i]);
        __syncthreads();
        for (int64_t k = threadIdx.x; k < p.n_heads * n; k += blockDim.x) {
            const int64_t h = k / n;
            const int i = (int)(k - h * n);
            const float *x = (const float *)((const char *)(uintptr_t)p.x.data + t * p.x.stride[1] +
                                             h * p.x.stride[2]);
            float *out = (float *)((char *)(uintptr_t)p.out.data + t * p.out.stride[1] +
                                   h * p.out.stride[2]);
            if (i >= p.n_pairs) { /* dimensions that stay */
                out[i + p.n_pairs] = x[i + p.n_pairs];
                continue;
            }
            const int a = i * p.first, b = a + p.second;
            const float xa = x[a], xb = x[b];
            out[a] = xa * cosine[i] - xb * sine[i];
            out[b] = xb * cosine[i] + xa * sine[i];
        }
    }
}
