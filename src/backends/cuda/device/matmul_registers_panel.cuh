/* SPDX-License-Identifier: MIT
 * Panels of packed weights in shared memory made bf16 in registers, as wgmma takes them from there.
 *
 * All vectors of codes have byte k % 16 for k (matmul_forms_cuda.h), so halfwords t and t + 4 of each are what a lane
 * has of 16 k.  A byte is a bf16 as it is, of 2^-133 times its value: those below 128 are subnormal, the others
 * the smallest normal ones.  So a weight is one fused multiply-add, with d and the minimum rounded to bf16, the base times d
 * exactly.  d is 2^133 times as large then; so that it is not infinite weights are 2^-64 of what they are until sums are
 * made: d may be anything from 2^-62 to 2^58. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_MATMUL_REGISTERS_PANEL_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_MATMUL_REGISTERS_PANEL_CUH

#include "backends/cuda/device/matmul_stream_panel.cuh"
#include "backends/cuda/device/pairs.cuh"

/* What sums of such weights are multiplied with in the end. */
static __device__ __forceinline__ constexpr float qrn_registers_unit()
{
    return 18446744073709551616.0f; /* 2^64 */
}

/* --- codes --- */

/* Halfword t of vector i of a panel's codes and the one 8 bytes on, of the lane's row and its second one, 8 below unless it is in
 * another panel. */
struct qrn_halfwords {
    const uint8_t *codes; /* of the lane */
    int down_bytes = 128;
    __device__ __forceinline__ uint32_t at(int i, int down, int right) const
    {
        return *(const uint16_t *)(codes + 512 * i + down_bytes * down + 8 * right);
    }
    /* Both, of both rows. */
    __device__ __forceinline__ void operator()(int i, uint32_t (&v)[2]) const
    {
#pragma unroll
        for (int r = 0; r < 2; r++) v[r] = at(i, r, 0) | at(i, r, 1) << 16;
    }
};

/* Bytes 0 and 1 of q, or 2 and 3, as the lower ones of two halves. */
static __device__ __forceinline__ uint32_t qrn_pair_of_bytes(uint32_t q, int right)
{
    return __byte_perm(q, 0, right ? 0x4342 : 0x4140);
}

/* Whether bytes of levels are signed: 128 is added to them. */
static __device__ __forceinline__ constexpr bool qrn_levels_wrap(const qrn_form &f)
{
    return f.bits == 8 || f.levels != QRN_LEVELS_LINEAR;
}

/* --- scales --- */

/* Of half h of a block: d, 2^69 times as large, and the minimum, 2^-64 times; each twice. */
struct qrn_pairs_of_block {
    uint32_t d[2], m[2];
};

/* Whether a block's halves have scales of their own. */
static __device__ __forceinline__ constexpr bool qrn_halves_differ(const qrn_form &f)
{
    return f.sub == QRN_SUB_HALVES || f.sub == QRN_SUB_HALVES_MIN;
}

/* Those of block lane % 4 of a row. */
template <int dtype>
static __device__ __forceinline__ void qrn_load_pairs(const qrn_panel_form &form, const uint8_t *panel, int row,
                                                      qrn_pairs_of_block &to)
{
    constexpr qrn_form f = qrn_form_of(dtype);
    constexpr int sub_bytes = qrn_form_sub_bytes(f.sub);
    constexpr float of_d = 590295810358705651712.0f, of_m = 1.0f / qrn_registers_unit(); /* 2^69, 2^-64 */
    const uint8_t *subs = panel + 512 * f.bits;
    const int j = qrn_lane() % 4;
    qrn_block b;
    qrn_panel_head<true>(form, subs + 32 * sub_bytes + row * form.head_bytes, j, b);
    b.d *= of_d, b.m *= of_m;
#pragma unroll
    for (int h = 0; h < 1 + qrn_halves_differ(f); h++) {
        int s, t;
        qrn_small_integers(f, subs, row, j, h, s, t);
        const float d = f.sub == QRN_SUB_NONE ? b.d : b.d * (float)s, m = f.sub == QRN_SUB_NONE ? b.m : b.m * (float)t;
        to.d[h] = qrn_bf16_pair(d, d);
        to.m[h] = qrn_bf16_pair(m, m);
    }
}

/* Those of block j, from the lane that has them; what is without a minimum has the base times d. */
template <int dtype>
static __device__ __forceinline__ qrn_pairs_of_block qrn_pairs_of(const qrn_pairs_of_block &own, int j)
{
    constexpr qrn_form f = qrn_form_of(dtype);
    constexpr int base = f.base - (qrn_levels_wrap(f) ? 128 : 0);
    qrn_pairs_of_block b;
#pragma unroll
    for (int h = 0; h < 1 + qrn_halves_differ(f); h++) {
        b.d[h] = __shfl_sync(QRN_ALL_OF_WARP, own.d[h], j, 4);
        if (qrn_has_min(f)) b.m[h] = __shfl_sync(QRN_ALL_OF_WARP, own.m[h], j, 4);
        else b.m[h] = qrn_pair_multiply(b.d[h], (0x8000u | (uint32_t)-base) * 0x10001u);
    }
    if (!qrn_halves_differ(f)) b.d[1] = b.d[0], b.m[1] = b.m[0];
    static_assert(qrn_has_min(f) ? base == 0 : base < 0, "");
    return b;
}

/* --- weights --- */

/* Fragments of block j: first[2 right + down] of its first 16 k, second of the others; b: of both rows.  Pairs: qrn_bf16_pairs,
 * or qrn_f16_pairs (matmul_exact_panel.cuh). */
template <int dtype, class Pairs = qrn_bf16_pairs>
static __device__ __forceinline__ void qrn_weights_of_block(const qrn_halfwords &load, int j, const qrn_pairs_of_block (&b)[2],
                                                            uint32_t (&first)[4], uint32_t (&second)[4])
{
    constexpr qrn_form f = qrn_form_of(dtype);
    uint32_t q[4];
    if (f.bits == 4 && f.levels == QRN_LEVELS_LINEAR) { /* the upper nibble is sixteen times its code */
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint32_t both = qrn_pair_of_bytes(load.at(j, i % 2, i / 2), 0), d = b[i % 2].d[0], m = b[i % 2].m[0];
            first[i] = Pairs::fma(both & 0x000f000fu, d, m);
            second[i] = Pairs::fma(both & 0x00f000f0u, Pairs::multiply(d, Pairs::SIXTEENTH), m);
        }
        return;
    }
    qrn_stream_levels<dtype, 2, false>(load, j, 0, q);
#pragma unroll
    for (int i = 0; qrn_levels_wrap(f) && i < 4; i++) q[i] ^= 0x80808080u;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const qrn_pairs_of_block &row = b[i % 2];
        first[i] = Pairs::fma(qrn_pair_of_bytes(q[i % 2], i / 2), row.d[0], row.m[0]);
        second[i] = Pairs::fma(qrn_pair_of_bytes(q[2 + i % 2], i / 2), row.d[1], row.m[1]);
    }
}

/* Those of 64 k, the panel's first or second half; own: what qrn_load_pairs gave for both rows. */
template <int dtype>
static __device__ __forceinline__ void qrn_weights_of_half(const qrn_halfwords &load, int half,
                                                           const qrn_pairs_of_block (&own)[2], uint32_t (&a)[4][4])
{
#pragma unroll
    for (int j = 0; j < 2; j++) {
        const qrn_pairs_of_block pairs[2] = {qrn_pairs_of<dtype>(own[0], 2 * half + j),
                                             qrn_pairs_of<dtype>(own[1], 2 * half + j)};
        qrn_weights_of_block<dtype>(load, 2 * half + j, pairs, a[2 * j], a[2 * j + 1]);
    }
}

/* c += 64 rows of weights times N rows of x, of 64 k. */
template <int N>
static __device__ __forceinline__ void qrn_registers_multiply(float (&c)[N / 2], const uint32_t (&a)[4][4], uint64_t x)
{
    qrn_wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; i++) qrn_wgmma_bf16<N, QRN_BY_K>(c, a[i], qrn_tile_moved(x, 32 * i), 1);
    qrn_wgmma_commit();
}

#endif
