/* SPDX-License-Identifier: MIT
 * Blocks of packed weights, in the layout of matmul_forms_cuda.h: loads of 16 bytes, a warp's side by
 * side.  With a form that is known when this is compiled little is left but loads, masks and shifts. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_PANELS_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_PANELS_CUH

#include "backends/cuda/device/weights.cuh"
#include "backends/cuda/matmul_cuda.h"

/* How the panels of a matrix are cut. */
struct qrn_panel_form {
    qrn_form f;
    int run, wide, head_bytes, scales_dtype;
};

static __device__ __forceinline__ qrn_panel_form qrn_panel_form_of(int dtype, const qrn_weights_params &w)
{
    qrn_panel_form p;
    p.f = qrn_form_of(dtype);
    const bool mlx = p.f.run == 0;
    p.run = mlx ? w.group / 32 : p.f.run;
    p.wide = mlx ? w.wide_scales : 0;
    p.head_bytes = qrn_form_head_bytes(p.f.head, p.run, p.wide);
    p.scales_dtype = mlx ? w.scales_dtype : QRN_F16;
    return p;
}

/* Panel `panel` of group `group` of 32 rows. */
static __device__ __forceinline__ const uint8_t *qrn_panel_at(const qrn_weights_params &w, int64_t matrix,
                                                              int64_t group, int64_t panel)
{
    return (const uint8_t *)(uintptr_t)w.packed + matrix * w.matrix_bytes + group * w.group_bytes +
           panel * w.panel_bytes;
}

/* Panels lie in global memory, or were copied to shared memory. */
template <bool is_shared, typename T> static __device__ __forceinline__ T qrn_panel_load(const T *p)
{
    if constexpr (is_shared) return *p;
    else return __ldg(p);
}

/* Where panels are shared decoding is what counts, and the one instruction is taken, which differs in what
 * NaNs carry. */
template <bool is_shared> static __device__ __forceinline__ float qrn_panel_f16(uint32_t bits)
{
#ifndef QRN_EMULATED
    if constexpr (is_shared) {
        float x;
        asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"((uint16_t)bits));
        return x;
    }
#endif
    return qrn_float_of_f16((uint16_t)bits);
}

template <bool is_shared> static __device__ __forceinline__ float qrn_scale_of(int dtype, uint32_t bits)
{
    return dtype == QRN_BF16 ? __uint_as_float(bits << 16) : qrn_panel_f16<is_shared>(bits);
}

/* d and m of block j of a lane. */
template <bool is_shared = false>
static __device__ __forceinline__ void qrn_panel_head(const qrn_panel_form &p, const uint8_t *heads, int j,
                                                      qrn_block &b)
{
    const int i = j / p.run;
    b.m = 0.0f;
    if (p.f.head == QRN_HEAD_F16) {
        b.d = qrn_panel_f16<is_shared>(qrn_panel_load<is_shared>((const uint16_t *)heads + i));
    } else if (p.f.head == QRN_HEAD_E8M0) {
        b.d = qrn_e8m0_half(qrn_panel_load<is_shared>(heads + i));
    } else if (p.wide) {
        const float2 both = qrn_panel_load<is_shared>((const float2 *)heads + i);
        b.d = both.x, b.m = both.y;
    } else {
        const uint32_t both = qrn_panel_load<is_shared>((const uint32_t *)heads + i);
        b.d = qrn_scale_of<is_shared>(p.scales_dtype, both & 0xffffu);
        b.m = qrn_scale_of<is_shared>(p.scales_dtype, both >> 16);
        if (p.f.sub == QRN_SUB_SCALE_MIN || p.f.sub == QRN_SUB_HALVES_MIN) b.m = -b.m;
    }
}

/* Bytes s and bytes t of a lane's four blocks, where they are 6 bits. */
template <bool is_shared>
static __device__ __forceinline__ uint2 qrn_panel_mins(const uint8_t *subs, int lane)
{
    const uint32_t a = qrn_panel_load<is_shared>((const uint32_t *)subs + lane),
                   low = qrn_panel_load<is_shared>((const uint16_t *)(subs + 32 * qrn_form_sub_step(QRN_SUB_SCALE_MIN)) + lane),
                   apart = __byte_perm(low, 0, 0x4140);
    return make_uint2(a & 0x3f3f3f3fu, ((apart | apart << 4) & 0x0f0f0f0fu) | (a >> 2 & 0x30303030u));
}

/* Small integers of half h of block j of a lane, byte by byte: where few are wanted. */
static __device__ __forceinline__ void qrn_small_integers(const qrn_form &f, const uint8_t *subs, int lane, int j, int h,
                                                          int &s, int &t)
{
    const int step = qrn_form_sub_step(f.sub);
    const uint8_t *own = subs + lane * step;
    s = t = 1;
    if (f.sub == QRN_SUB_SCALE) {
        s = ((const int8_t *)own)[j];
    } else if (f.sub == QRN_SUB_SCALE_MIN) {
        const int low = subs[32 * step + 2 * lane + j / 2] >> 4 * (j % 2);
        s = own[j] & 63, t = (own[j] >> 2 & 48) | (low & 15);
    } else if (f.sub == QRN_SUB_HALVES) {
        s = ((const int8_t *)own)[2 * j + h];
    } else if (f.sub == QRN_SUB_HALVES_MIN) {
        s = own[2 * j + h] & 15, t = own[2 * j + h] >> 4;
    }
}

/* Those of block j of a lane. */
template <bool is_shared = false>
static __device__ __forceinline__ void qrn_panel_sub(const qrn_form &f, const uint8_t *subs, int lane, int j,
                                                     qrn_block &b)
{
    if (is_shared) {
#pragma unroll
        for (int h = 0; h < 2; h++) qrn_small_integers(f, subs, lane, j, h, b.s[h], b.t[h]);
        return;
    }
    b.s[0] = b.s[1] = b.t[0] = b.t[1] = 1;
    if (f.sub == QRN_SUB_SCALE) {
        b.s[0] = b.s[1] = (int8_t)(__ldg((const uint32_t *)subs + lane) >> 8 * j);
    } else if (f.sub == QRN_SUB_SCALE_MIN) {
        const uint2 mins = qrn_panel_mins<false>(subs, lane);
        b.s[0] = b.s[1] = (int)(mins.x >> 8 * j & 255u);
        b.t[0] = b.t[1] = (int)(mins.y >> 8 * j & 255u);
    } else if (f.sub != QRN_SUB_NONE) {
        const uint2 both = __ldg((const uint2 *)subs + lane);
        const uint32_t two = (j < 2 ? both.x : both.y) >> 16 * (j % 2);
        if (f.sub == QRN_SUB_HALVES) {
            b.s[0] = (int8_t)two, b.s[1] = (int8_t)(two >> 8);
        } else {
            b.s[0] = (int)(two & 15u), b.t[0] = (int)(two >> 4 & 15u);
            b.s[1] = (int)(two >> 8 & 15u), b.t[1] = (int)(two >> 12 & 15u);
        }
    }
}

static __device__ __forceinline__ void qrn_words_of(const uint4 &v, uint32_t (&out)[4])
{
    out[0] = v.x, out[1] = v.y, out[2] = v.z, out[3] = v.w;
}

/* Levels of block j of a lane. */
template <bool is_shared = false>
static __device__ __forceinline__ void qrn_panel_levels(const qrn_form &f, const uint4 *codes, int j,
                                                        qrn_block &b)
{
    uint32_t v[4];
    if (f.bits == 8) {
        const uint4 first = qrn_panel_load<is_shared>(codes + 64 * j), second = qrn_panel_load<is_shared>(codes + 64 * j + 32);
        b.q[0] = first.x, b.q[1] = first.y, b.q[2] = first.z, b.q[3] = first.w;
        b.q[4] = second.x, b.q[5] = second.y, b.q[6] = second.z, b.q[7] = second.w;
        return;
    }
    qrn_words_of(qrn_panel_load<is_shared>(codes + 32 * (f.bits >= 4 ? j : j / 2)), v);
#pragma unroll
    for (int w = 0; w < 4; w++) {
        if (f.bits >= 4) {
            qrn_level_nibbles(f.levels, v[w], b.q[w], b.q[4 + w]);
        } else {
            b.q[w] = v[w] >> 4 * (j % 2) & 0x03030303u;
            b.q[4 + w] = v[w] >> (4 * (j % 2) + 2) & 0x03030303u;
        }
    }
    if (f.bits == 4 || f.bits == 2) return;
    qrn_words_of(qrn_panel_load<is_shared>(codes + 32 * (f.bits == 3 ? 2 : f.bits == 5 ? 4 : 4 + j / 2)), v);
#pragma unroll
    for (int w = 0; w < 4; w++) {
        if (f.bits == 6) {
            b.q[w] |= (v[w] >> 4 * (j % 2) & 0x03030303u) << 4;
            b.q[4 + w] |= (v[w] >> (4 * (j % 2) + 2) & 0x03030303u) << 4;
        } else {
            const int at = f.bits == 3 ? 2 : 4;
            b.q[w] |= (v[w] >> 2 * j & 0x01010101u) << at;
            b.q[4 + w] |= (v[w] >> (2 * j + 1) & 0x01010101u) << at;
        }
    }
}

/* Block j (0 .. 3) of a panel, of the row that is lane's, with levels. */
template <bool is_shared = false>
static __device__ __forceinline__ void qrn_panel_block(const qrn_panel_form &p, const uint8_t *panel,
                                                       int lane, int j, qrn_block &b)
{
    const int sub_bytes = qrn_form_sub_bytes(p.f.sub);
    const uint8_t *subs = panel + 512 * p.f.bits;
    qrn_panel_levels<is_shared>(p.f, (const uint4 *)panel + lane, j, b);
    qrn_panel_sub<is_shared>(p.f, subs, lane, j, b);
    qrn_panel_head<is_shared>(p, subs + 32 * sub_bytes + lane * p.head_bytes, j, b);
}

#endif
