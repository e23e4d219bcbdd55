/* SPDX-License-Identifier: MIT
 * gdn_open_chunk with AVX-512: three tokens, their keys and queries, by 64 columns in registers. */
#include "backends/cpu/avx512/vec_avx512.h"

typedef __m512 vec;
enum { LANES = 16, WIDE = 4, WIDE_ONE = 8 };

static inline vec vzero(void) { return _mm512_setzero_ps(); }
static inline vec vset1(float x) { return _mm512_set1_ps(x); }
static inline vec vload(const float *p) { return _mm512_loadu_ps(p); }
static inline void vstore(float *p, vec v) { _mm512_storeu_ps(p, v); }
static inline vec vmul(vec a, vec b) { return _mm512_mul_ps(a, b); }
static inline vec vfma(vec a, vec b, vec c) { return _mm512_fmadd_ps(a, b, c); }
static inline vec vfnma(vec a, vec b, vec c) { return _mm512_fnmadd_ps(a, b, c); }

static inline vec vload_first(const float *p, int n)
{
    return _mm512_maskz_loadu_ps(first_lanes(n), p);
}

static inline void vstore_first(float *p, int n, vec v)
{
    _mm512_mask_storeu_ps(p, first_lanes(n), v);
}

static inline vec vdecay(double G, const double *p)
{
    const __m512d g = _mm512_set1_pd(G);
    const __m256 lo = _mm512_cvtpd_ps(_mm512_sub_pd(g, _mm512_loadu_pd(p)));
    const __m256 hi = _mm512_cvtpd_ps(_mm512_sub_pd(g, _mm512_loadu_pd(p + 8)));
    return exp_ps(_mm512_insertf32x8(_mm512_castps256_ps512(lo), hi, 1));
}

#include "backends/cpu/gdn_open_chunk_tiles.inc"

static void run(void *lane, const void *args)
{
    static const struct gdn_open_steps steps = {dots, decays, tokens, edge};
    gdn_open_chunk_walk(lane, args, &steps);
}

const struct qrn_kernel qrn_cpu_gdn_open_chunk_avx512 = {
    .op = QRN_OP_gdn_open_chunk, .name = "cpu.gdn_open_chunk.avx512", .needs = QRN_CPU_AVX512,
    .scratch_bytes = gdn_open_chunk_scratch, .run = run,
};
