/* SPDX-License-Identifier: MIT
 * Integer sums of vpdpbusd, for few rows of x and for many: how sums of blocks are added up. */
#ifndef QUERN_MATMUL_SUMS_AVX512VNNI_H
#define QUERN_MATMUL_SUMS_AVX512VNNI_H

#include "backends/cpu/matmul_codes_avx512.h"
#include "backends/cpu/matmul_vnni.h"

INLINE __m512 float_sum(const struct matmul_form f, __m512i sum)
{
    return float_sums(f) ? _mm512_castsi512_ps(sum) : _mm512_cvtepi32_ps(sum);
}

/* Small integers as add_scaled wants them. */
INLINE __m512i as_factor(const struct matmul_form f, __m512i s)
{
    return float_sums(f) ? _mm512_castps_si512(_mm512_cvtepi32_ps(s)) : s;
}

/* sum + dot * s; sum: integers, or floats where those hold them. */
INLINE __m512i add_scaled(const struct matmul_form f, __m512i sum, __m512i dot, __m512i s)
{
    if (float_sums(f))
        return _mm512_castps_si512(_mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), _mm512_castsi512_ps(s),
                                                   _mm512_castsi512_ps(sum)));
    sum = _mm512_add_epi32(sum, _mm512_mullo_epi32(dot, s));
    __asm__("" : "+v"(sum)); /* here, not with all others at the end */
    return sum;
}

#endif
