/* SPDX-License-Identifier: MIT
 * matmul_pack: a thread writes what a lane will read of a panel.  Bound by memory; stores lie side by
 * side, loads are of whole lines by one thread after the other. */
#include "backends/cuda/device/matmul_job.cuh"
#include "backends/cuda/device/panels.cuh"

/* The codes of four blocks into vectors of 16 bytes, 512 bytes apart. */
static __device__ __forceinline__ void put_codes(int bits, const qrn_block (&b)[4], uint32_t *out)
{
#pragma unroll
    for (int w = 0; w < 4; w++) {
        uint32_t v[8] = {0, 0, 0, 0, 0, 0, 0, 0};
#pragma unroll
        for (int i = 0; i < 8; i++) { /* 16 k each */
            const uint32_t x = b[i / 2].q[4 * (i % 2) + w];
            if (bits == 8) {
                v[i] = x;
            } else if (bits >= 4) {
                v[i / 2] |= (x & 0x0f0f0f0fu) << 4 * (i % 2);
                if (bits == 5) v[4] |= (x >> 4 & 0x01010101u) << i;
                if (bits == 6) v[4 + i / 4] |= (x >> 4 & 0x03030303u) << 2 * (i % 4);
            } else {
                v[i / 4] |= (x & 0x03030303u) << 2 * (i % 4);
                if (bits == 3) v[2] |= (x >> 2 & 0x01010101u) << i;
            }
        }
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (i < bits) out[128 * i + w] = v[i];
    }
}

static __device__ __forceinline__ void put_subs(int sub, const qrn_block (&b)[4], uint8_t *subs, int lane)
{
    const int step = qrn_form_sub_step(sub);
    uint8_t *out = subs + lane * step, *low = subs + 32 * step + 2 * lane;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        if (sub == QRN_SUB_SCALE) out[j] = (uint8_t)b[j].s[0];
        if (sub == QRN_SUB_SCALE_MIN) out[j] = (uint8_t)(b[j].s[0] | b[j].t[0] >> 4 << 6);
        if (sub == QRN_SUB_SCALE_MIN && j < 2) low[j] = (uint8_t)((b[2 * j].t[0] & 15) | (b[2 * j + 1].t[0] & 15) << 4);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            if (sub == QRN_SUB_HALVES) out[2 * j + h] = (uint8_t)b[j].s[h];
            if (sub == QRN_SUB_HALVES_MIN) out[2 * j + h] = (uint8_t)(b[j].s[h] | b[j].t[h] << 4);
        }
    }
}

/* d and m as the type has them; both are exact in it. */
static __device__ __forceinline__ void put_heads(const qrn_panel_form &p, const qrn_block (&b)[4],
                                                 uint8_t *out)
{
    const bool negated = p.f.sub == QRN_SUB_SCALE_MIN || p.f.sub == QRN_SUB_HALVES_MIN;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const int i = j / p.run;
        if (j % p.run) continue;
        const float d = b[j].d, m = negated ? -b[j].m : b[j].m;
        if (p.f.head == QRN_HEAD_F16) {
            ((uint16_t *)out)[i] = qrn_f16_of_float(d);
        } else if (p.f.head == QRN_HEAD_E8M0) {
            const uint32_t bits = __float_as_uint(d);
            out[i] = (uint8_t)(bits < 0x00800000u ? (bits == 0x00400000u) : (bits >> 23) + 1);
        } else if (p.wide) {
            ((float2 *)out)[i] = make_float2(d, m);
        } else if (p.scales_dtype == QRN_BF16) {
            ((uint32_t *)out)[i] = __float_as_uint(d) >> 16 | (__float_as_uint(m) & 0xffff0000u);
        } else {
            ((uint32_t *)out)[i] = qrn_f16_of_float(d) | (uint32_t)qrn_f16_of_float(m) << 16;
        }
    }
}

QRN_DEVICE_FUNCTION_ALONE(qrn_matmul_pack, 128, 1, qrn_matmul_pack_params)
{
    const qrn_panel_form form = qrn_panel_form_of(p.w.dtype, p.w);
    const int64_t n_panels = (p.w.k + QRN_PANEL_K - 1) / QRN_PANEL_K;
    const int64_t n_groups = (p.w.n + QRN_PANEL_ROWS - 1) / QRN_PANEL_ROWS;
    const int64_t step = (int64_t)gridDim.x * (blockDim.x / 32), n = p.n_matrices * n_groups * n_panels;
    const int lane = qrn_lane();
    for (int64_t i = (int64_t)blockIdx.x * (blockDim.x / 32) + qrn_warp(); i < n; i += step) {
        const int64_t panel = i % n_panels, group = i / n_panels % n_groups, matrix = i / n_panels / n_groups;
        const int64_t row = group * QRN_PANEL_ROWS + lane;
        qrn_block b[4];
        const qrn_weight_row from = qrn_row_of_weights(p.w, p.n_matrices, matrix, row);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            if (row < p.w.n && panel * QRN_PANEL_K + 32 * j < p.w.k)
                qrn_take_block(from, 4 * panel + j, b[j]);
            else
                b[j] = qrn_block{};
        }
        uint8_t *to = (uint8_t *)(uintptr_t)qrn_panel_at(p.w, matrix, group, panel);
        put_codes(form.f.bits, b, (uint32_t *)to + 4 * lane);
        uint8_t *subs = to + 512 * form.f.bits;
        const int sub_bytes = qrn_form_sub_bytes(form.f.sub);
        put_subs(form.f.sub, b, subs, lane);
        put_heads(form, b, subs + 32 * sub_bytes + lane * form.head_bytes);
        const int64_t rest = p.w.group_bytes - n_panels * p.w.panel_bytes;
        if (panel == n_panels - 1 && lane < rest / 4) ((uint32_t *)(to + p.w.panel_bytes))[lane] = 0;
    }
}
