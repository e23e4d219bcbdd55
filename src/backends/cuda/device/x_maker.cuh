/* SPDX-License-Identifier: MIT
 * Rows of x that a product makes itself (x_maker_cuda.h): a warp makes pieces, 4 elements a lane, to the
 * bit of norm_registers.cu and elementwise.cu. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_X_MAKER_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_X_MAKER_CUH

#include "backends/cuda/device/norm_part.cuh"
#include "backends/cuda/x_maker_cuda.h"

enum { X_NORM_WARPS = 8 }; /* that share the squares of a row of more than QRN_NORM_WARP_ROW */

/* The lane's four elements of piece i of row r. */
static __device__ __forceinline__ float4 *x_place(const qrn_x_maker &m, const qrn_x_side &side, int r,
                                                  int i)
{
    const int head = i / m.head_pieces;
    return (float4 *)(uintptr_t)(side.data + (uint64_t)(r * side.row + head * side.head)) +
           (i - head * m.head_pieces) * (QRN_PIECE / 4) + qrn_lane();
}

struct x_piece {
    float a[4], b[4], w[4];

    static __device__ __forceinline__ void put(float (&to)[4], float4 v)
    {
        to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
    }
    __device__ __forceinline__ void load_sides(const qrn_x_maker &m, int r, int i)
    {
        put(a, *x_place(m, m.a, r, i));
        put(b, m.b.data ? *x_place(m, m.b, r, i) : make_float4(0.0f, 0.0f, 0.0f, 0.0f));
    }
    __device__ __forceinline__ void load(const qrn_x_maker &m, int r, int i)
    {
        const int of_weight = m.made == QRN_X_NORM ? i : 0;
        load_sides(m, r, i);
        if (m.weight)
            put(w, ((const float4 *)(uintptr_t)m.weight)[of_weight * (QRN_PIECE / 4) + qrn_lane()]);
    }
    __device__ __forceinline__ void add(const qrn_x_maker &m)
    {
        if (!m.b.data) return;
#pragma unroll
        for (int j = 0; j < 4; j++) a[j] += b[j];
    }
    /* a becomes x; scale: of a row that is normed.  All lanes of a warp come here. */
    __device__ __forceinline__ void make(const qrn_x_maker &m, float scale)
    {
        if (m.made == QRN_X_HEAD_NORM) {
            norm_part<1, 1> row;
#pragma unroll
            for (int j = 0; j < 4; j++) row.v[0][j] = a[j];
            scale = row.rms_scale(QRN_PIECE, m.eps, nullptr);
        }
#pragma unroll
        for (int j = 0; j < 4; j++) {
            if (m.made == QRN_X_SILU_MUL) {
                a[j] = qrn_silu(a[j]) * b[j];
            } else if (m.made == QRN_X_SIGMOID_MUL) {
                a[j] *= qrn_sigmoid(b[j]);
            } else {
                a[j] *= scale;
                if (m.weight) a[j] *= w[j];
                if (m.made == QRN_X_HEAD_NORM && m.b.data) a[j] *= qrn_silu(b[j]);
            }
        }
    }
    __device__ __forceinline__ void store(const qrn_x_maker &m, const qrn_x_side &side, int r, int i) const
    {
        if (side.data) *x_place(m, side, r, i) = make_float4(a[0], a[1], a[2], a[3]);
    }
};

/* Sums of squares of rows that are normed, part of a row for each warp that has one; seen after a barrier
 * of the n_warps warps that come here. */
static __device__ __forceinline__ void x_add_squares(const qrn_x_maker &m, int n_rows, int n_pieces,
                                                     int n_warps, float (*squares)[X_NORM_WARPS])
{
    enum { AT_ONCE = 4 };
    const int n_parts = n_pieces * QRN_PIECE > QRN_NORM_WARP_ROW ? (int)X_NORM_WARPS : 1;
    for (int item = qrn_warp(); item < n_rows * n_parts; item += n_warps) {
        const int r = item / n_parts, part = item - r * n_parts;
        float sum = 0.0f;
        for (int first = part; first < n_pieces; first += AT_ONCE * n_parts) {
            x_piece x[AT_ONCE];
#pragma unroll
            for (int n = 0; n < AT_ONCE; n++)
                x[n].load_sides(m, r, min(first + n * n_parts, n_pieces - 1));
#pragma unroll
            for (int n = 0; n < AT_ONCE; n++) {
                if (first + n * n_parts >= n_pieces) break;
                x[n].add(m);
#pragma unroll
                for (int j = 0; j < 4; j++) sum = fmaf(x[n].a[j], x[n].a[j], sum);
            }
        }
        sum = qrn_warp_sum(sum);
        if (qrn_lane() == 0) squares[r][part] = sum;
    }
}

static __device__ __forceinline__ float x_scale(const qrn_x_maker &m, int r, int n_pieces,
                                                const float (*squares)[X_NORM_WARPS])
{
    const int n_parts = n_pieces * QRN_PIECE > QRN_NORM_WARP_ROW ? (int)X_NORM_WARPS : 1;
    float sum = squares[r][0];
    for (int i = 1; i < n_parts; i++) sum += squares[r][i];
    return 1.0f / sqrtf(sum / (float)(n_pieces * QRN_PIECE) + m.eps);
}

/* Makes pieces begin, begin + step ... of all rows, MANY of which are under way at once, and gives each to
 * keep(r, i, x); the first block stores them. */
template <int MANY, class Keep>
static __device__ __forceinline__ void x_make(const qrn_x_maker &m, int n_rows, int n_pieces, int begin,
                                              int step, const float (*squares)[X_NORM_WARPS],
                                              const Keep &keep)
{
    const int n = n_rows * n_pieces;
    for (int first = begin; first < n; first += MANY * step) {
        x_piece x[MANY];
#pragma unroll
        for (int j = 0; j < MANY; j++) {
            const int at = min(first + j * step, n - 1), r = at / n_pieces;
            x[j].load(m, r, at - r * n_pieces);
        }
#pragma unroll
        for (int j = 0; j < MANY; j++) {
            const int at = first + j * step, r = at / n_pieces, i = at - r * n_pieces;
            if (at >= n) break;
            float scale = 0.0f;
            if (m.made == QRN_X_NORM) {
                x[j].add(m);
                if (blockIdx.x == 0) x[j].store(m, m.sum, r, i);
                scale = x_scale(m, r, n_pieces, squares);
            }
            x[j].make(m, scale);
            if (blockIdx.x == 0) x[j].store(m, m.out, r, i);
            keep(r, i, x[j].a);
        }
    }
}

#endif
