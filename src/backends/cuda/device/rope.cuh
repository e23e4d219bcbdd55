/* SPDX-License-Identifier: MIT
 * Angles of rope. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_ROPE_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_ROPE_CUH

#include "backends/cuda/device/rows.cuh"
#include "backends/cuda/rope_cuda.h"

/* With freq_factors, as ops/rope_angles.h has it.  Rare, and so a function that is called. */
static __device__ __noinline__ float rope_divided_frequency(const qrn_rope_params &p, int i)
{
    const double f = 1.0 / ((double)p.wave[i] * (double)p.freq_factors[i]);
    if (p.factor == 0.0) return (float)f;
    const double ramp = fmin(fmax(((double)i - p.low) / p.width, 0.0), 1.0);
    return (float)(f / p.factor * ramp + f * (1.0 - ramp));
}

static __device__ __forceinline__ float rope_frequency(const qrn_rope_params &p, int i)
{
    return p.freq_factors ? rope_divided_frequency(p, i) : p.wave[i];
}

/* Cosine and sine of pair i of a token.  A position out of range turns the pair into NaN. */
static __device__ __forceinline__ void rope_turn(const qrn_rope_params &p, int64_t token, int i,
                                                 float *cosine, float *sine)
{
    const int32_t position = p.positions[p.axis[i] * p.position_stride + token];
    if (position < 0 || position > QRN_ROPE_MAX_POSITION) {
        *cosine = *sine = __uint_as_float(0x7fc00000u);
        return;
    }
    double c, s;
    sincos((double)((float)position * rope_frequency(p, i)), &s, &c);
    *cosine = (float)c * p.magnitude;
    *sine = (float)s * p.magnitude;
}

#endif
