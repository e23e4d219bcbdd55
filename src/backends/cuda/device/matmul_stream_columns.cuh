/* SPDX-License-Identifier: MIT
 * Panels of packed weights with several rows of x, to the bit of products.cuh, on tensor cores of bytes.  Their eight
 * columns are as many rows of x, or four with each of two panels: what is not a panel's is 0 there, sums of both
 * come in one, and what follows for each sum is done for no column that is not there. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_MATMUL_STREAM_COLUMNS_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_MATMUL_STREAM_COLUMNS_CUH

#include "backends/cuda/device/matmul_stream_panel.cuh"

/* isum += of 16 rows of weights and eight columns, block j: all that N panels have for them. */
template <int dtype, int N>
static __device__ __forceinline__ void qrn_stream_multiply(const uint32_t (&a)[N][4], const uint32_t (&b)[N][2],
                                                           const int (&s)[2][2], const int (&sum0)[2],
                                                           const int (&sum1)[2], int (&isum)[4])
{
    constexpr qrn_form f = qrn_form_of(dtype);
    constexpr int base = qrn_stream_base(f);
    int c[4], e[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        c[i] = base ? base * (qrn_stream_halves(f) ? sum0[i % 2] : sum0[i % 2] + sum1[i % 2]) : 0;
        e[i] = base ? base * sum1[i % 2] : 0;
    }
    if (f.sub == QRN_SUB_NONE) {
#pragma unroll
        for (int i = 0; base && i < 4; i++) isum[i] += c[i];
#pragma unroll
        for (int n = 0; n < N; n++) qrn_mma_s8(isum, a[n], b[n]);
    } else if (!qrn_stream_halves(f)) {
#pragma unroll
        for (int n = 0; n < N; n++) qrn_mma_s8(c, a[n], b[n]);
#pragma unroll
        for (int i = 0; i < 4; i++) isum[i] += s[i / 2][0] * c[i];
    } else {
#pragma unroll
        for (int n = 0; n < N; n++) {
            qrn_mma_s8_short(c, a[n][0], a[n][1], b[n][0]);
            qrn_mma_s8_short(e, a[n][2], a[n][3], b[n][1]);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) isum[i] += s[i / 2][0] * c[i] + s[i / 2][1] * e[i];
    }
}

/* Where a lane finds rows of x, one after the other for each panel, on tensor cores: up to eight with a panel at once,
 * or up to four with 16 rows of each of two. */
template <int COLUMNS> struct qrn_stream_columns {
    enum { PANELS = QRN_STREAM_COLUMNS / COLUMNS, TILES = 2 / PANELS };

    const uint8_t *codes[PANELS], *sums[2]; /* of panel 0: of the column whose codes it loads, of those it adds */
    int step[PANELS];                       /* to the next panel; 0: these are 0 for all panels */
    int own, first, n;                      /* which panel it adds, columns first and first + 1 of it, of n */

    /* zeros: QRN_STREAM_Q8 bytes. */
    __device__ __forceinline__ void find(const uint8_t *x, const uint8_t *zeros, int n_columns, int pitch)
    {
        const int lane = qrn_lane(), column = lane / 4;
        own = PANELS > 1 ? lane % 4 / 2 : 0, first = 2 * (lane % 4) % COLUMNS, n = n_columns;
#pragma unroll
        for (int i = 0; i < PANELS; i++) {
            const int is_there = PANELS == 1 || column / COLUMNS == i; /* a factor: a choice would keep arrays in memory */
            codes[i] = zeros + is_there * (x - zeros + min(column % COLUMNS, n - 1) * pitch) + QRN_STREAM_Q8_CODES +
                       4 * (lane % 4);
            step[i] = is_there * QRN_STREAM_Q8;
        }
#pragma unroll
        for (int e = 0; e < 2; e++) sums[e] = x + min(first + e, n - 1) * pitch + QRN_STREAM_Q8_SUMS;
    }
};

/* What a warp multiplies at once: a panel, or two from their row first_row on; one that is not there: another one. */
template <int COLUMNS> struct qrn_stream_work {
    const uint8_t *panel[qrn_stream_columns<COLUMNS>::PANELS];
    int k[qrn_stream_columns<COLUMNS>::PANELS], n_panels; /* numbers of the panels; how many there are */
    int first_row;
    float *p;                                             /* QRN_STREAM_P floats a column */
    int p_panel;                                          /* floats from a panel's to the next one's */
};

/* A lane loads codes of x for the tensor cores, of its column in each panel, and adds up what comes out for its own two
 * columns of its own panel: scales, minima and sums of x are those. */
template <int dtype, int COLUMNS>
static __device__ __forceinline__ void qrn_stream_multiply_panels(const qrn_panel_form &form, uint32_t flip,
                                                                  const qrn_stream_columns<COLUMNS> &x,
                                                                  const qrn_stream_work<COLUMNS> &work)
{
    enum { PANELS = qrn_stream_columns<COLUMNS>::PANELS, TILES = qrn_stream_columns<COLUMNS>::TILES };
    constexpr qrn_form f = qrn_form_of(dtype);
    constexpr bool needs_sums = qrn_has_min(f) || qrn_stream_base(f);
    const int row = work.first_row + qrn_lane() / 4;
    const uint8_t *own_panel = x.own ? work.panel[PANELS - 1] : work.panel[0];
    const int own_k = x.own ? work.k[PANELS - 1] : work.k[0];
    qrn_stream_scales scales[2 * TILES];
    uint32_t sums[2][4] = {}, pairs[2][2] = {};
    float result[TILES][4] = {};
    int isum[TILES][4] = {}, tsum[TILES][4] = {};
#pragma unroll
    for (int h = 0; h < 2 * TILES; h++) qrn_stream_load_scales<dtype>(form, own_panel, 8 * h + row, scales[h]);
#pragma unroll
    for (int e = 0; needs_sums && e < 2; e++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            sums[e][j] = ((const uint32_t *)(x.sums[e] + own_k * QRN_STREAM_Q8))[j];
#pragma unroll
    for (int i = 0; qrn_stream_has_min_bytes(f) && i < 4; i++)
        pairs[i / 2][i % 2] = qrn_stream_pair_of(sums[i / 2][i % 2 * 2], sums[i / 2][i % 2 * 2 + 1]);
#pragma unroll
    for (int j = 0; j < 4; j++) {
        uint32_t q[PANELS][4 * TILES], b[PANELS][2];
        int sum0[2] = {0, 0}, sum1[2] = {0, 0};
#pragma unroll
        for (int n = 0; n < PANELS; n++) {
            const qrn_words_by_fragment load = {work.panel[n] + 16 * (work.first_row + qrn_lane() % (16 * TILES))};
            const uint32_t *of_x = (const uint32_t *)(x.codes[n] + work.k[n] * x.step[n] + 32 * j);
            b[n][0] = of_x[0], b[n][1] = of_x[4];
            qrn_stream_levels<dtype, 2 * TILES>(load, j, flip, q[n]);
        }
#pragma unroll
        for (int e = 0; needs_sums && e < 2; e++)
            sum0[e] = (int16_t)sums[e][j], sum1[e] = (int)sums[e][j] >> 16;
#pragma unroll
        for (int i = 0; i < TILES; i++) {
            uint32_t a[PANELS][4];
            int s[2][2], t[2][2];
#pragma unroll
            for (int n = 0; n < PANELS; n++)
#pragma unroll
                for (int w = 0; w < 2; w++)
                    a[n][w] = q[n][2 * i + w], a[n][2 + w] = q[n][2 * TILES + 2 * i + w];
            qrn_stream_subs(f, scales[2 * i].subs, j, s[0], t[0]);
            qrn_stream_subs(f, scales[2 * i + 1].subs, j, s[1], t[1]);
            qrn_stream_multiply<dtype, PANELS>(a, b, s, sum0, sum1, isum[i]);
#pragma unroll
            for (int e = 0; qrn_has_min(f) && e < 4; e++) {
                if (qrn_stream_has_min_bytes(f)) tsum[i][e] = qrn_stream_t_of_pairs(scales[2 * i + e / 2], pairs[e % 2]);
                else tsum[i][e] += qrn_stream_t(f, t[e / 2], sum0[e % 2], sum1[e % 2]);
            }
            if ((j + 1) % form.run) continue;
            float d[2], m[2];
            qrn_stream_head<dtype>(form, scales[2 * i], j, d[0], m[0]);
            qrn_stream_head<dtype>(form, scales[2 * i + 1], j, d[1], m[1]);
#pragma unroll
            for (int e = 0; e < 4; e++) {
                qrn_run_sums run = {isum[i][e], tsum[i][e]};
                qrn_end_run(f, d[e / 2], m[e / 2], run, result[i][e]);
                isum[i][e] = tsum[i][e] = 0;
            }
        }
    }
    float *to = work.p + x.own * work.p_panel + x.first * QRN_STREAM_P + row;
#pragma unroll
    for (int e = 0; e < 2; e++) {
        const bool is_there = x.own < work.n_panels && x.first + e < x.n;
#pragma unroll
        for (int h = 0; h < 2 * TILES; h++)
            if (is_there) to[e * QRN_STREAM_P + 8 * h] = result[h / 2][2 * (h % 2) + e];
    }
}

#endif
