/* SPDX-License-Identifier: MIT
 * Products of packed weights with many rows of x rounded to 8 bits on Hopper, each row with the bits it has alone; for each
 * type a function of its own.
 *
 * The expression is that of products.cuh.  Its integer sums are made by wgmma of f16 (matmul_exact_panel.cuh): floats, which
 * scales are multiplied with at once.  A tile is 128 rows of weights by 128 of x.  Two teams of four warps multiply 64 rows of
 * weights each, 32 k at a time, from registers, to which a warp decodes its sixteen rows while those before are multiplied.
 * One thread copies stages of 128 k: codes of x by a map, their scales and sums, the panels of four groups of 32 rows.
 *
 * A team's panel takes the tensor cores 512 cycles (Q6_K and IQ4_XS twice that), in which each of its warps issues some 550
 * instructions to decode and to scale sums, and warps of both teams share a scheduler: instructions bound as much as tensor
 * cores do. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_MATMUL_EXACT_PACKED_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_MATMUL_EXACT_PACKED_CUH

#include "backends/cuda/device/matmul_exact.cuh"
#include "backends/cuda/device/matmul_exact_panel.cuh"

enum { QRN_EXACT_SUMS = QRN_EXACT_X / 2 /* of a thread */ };

/* A ring of stages: codes of x in two boxes of 64 k, sums, scales, panels. */
struct qrn_exact_ring {
    char *stages;
    qrn_barrier *full, *empty;
    int stage_bytes;

    __device__ __forceinline__ char *x(int i) const { return stages + i * stage_bytes; }
    __device__ __forceinline__ char *sums(int i) const { return x(i) + QRN_EXACT_CODES_BYTES; }
    __device__ __forceinline__ char *scales(int i) const { return sums(i) + QRN_EXACT_SUMS_BYTES; }
    __device__ __forceinline__ char *panels(int i) const { return scales(i) + QRN_EXACT_SCALES_BYTES; }
};

/* --- one thread copies --- */

/* Scales from a multiple of four rows on, as bulk copies want it. */
static __device__ __forceinline__ void qrn_exact_copy_stage(const qrn_matmul_exact_params &p, const qrn_exact_ring &s, int i,
                                                            int row, int panel, const uint8_t *const (&from)[4])
{
    const int panel_bytes = (int)p.job.w.panel_bytes;
    const int64_t at = panel * p.x_apart + row;
    qrn_barrier *full = &s.full[i];
    qrn_barrier_arrive_expecting(full, QRN_EXACT_CODES_BYTES + QRN_EXACT_SUMS_BYTES + QRN_EXACT_SCALES_COPIED +
                                           4 * panel_bytes);
#pragma unroll
    for (int g = 0; g < 4; g++)
        qrn_bulk_copy(s.panels(i) + g * panel_bytes, from[g] + (int64_t)panel * panel_bytes, panel_bytes, full);
    for (int h = 0; h < 2; h++)
        qrn_tensor_copy(s.x(i) + h * (QRN_EXACT_CODES_BYTES / 2), &p.x, panel * QRN_PANEL_K + h * QRN_EXACT_BOX_K, row, 0, full);
    qrn_bulk_copy(s.sums(i), (const char *)(uintptr_t)p.sums + 16 * at, QRN_EXACT_SUMS_BYTES, full);
    qrn_bulk_copy(s.scales(i), (const float *)(uintptr_t)p.scales + at - row % 4, QRN_EXACT_SCALES_COPIED, full);
}

/* Of groups past the last one: that again. */
static __device__ __forceinline__ void qrn_exact_copies(const qrn_matmul_exact_params &p, const qrn_exact_ring &s)
{
    const int last = (int)((p.job.w.n - 1) / QRN_PANEL_ROWS);
    qrn_ring_place ring;
    for (int i = blockIdx.x; i < p.n_work; i += gridDim.x) {
        const qrn_exact_work work = qrn_exact_work_at(p, qrn_exact_weights(1), i);
        const int row = (int)work.tile.first, group = work.weights / QRN_PANEL_ROWS;
        if (work.n_panels == 0) continue;
        const uint8_t *from[4];
#pragma unroll
        for (int g = 0; g < 4; g++) from[g] = qrn_panel_at(p.job.w, work.tile.matrix, min(group + g, last), 0);
#pragma unroll 1
        for (int panel = 0; panel < work.n_panels; panel++, ring.next(p.n_stages)) {
            qrn_barrier_wait(&s.empty[ring.at], ring.parity ^ 1);
            qrn_exact_copy_stage(p, s, ring.at, row, panel, from);
        }
    }
}

/* --- two teams of four warps multiply --- */

/* Sums of a thread: of the whole, of a panel, of wgmma. */
struct qrn_exact_sums {
    float acc[QRN_EXACT_SUMS], p[QRN_EXACT_SUMS], e[QRN_EXACT_SUMS];
};

/* What a thread knows of a stage: its first row in the panel, small integers; scales of x of its first column, sums of all. */
struct qrn_exact_stage {
    const uint8_t *panel;
    int row;
    qrn_exact_subs subs;
    const float *d;
    const char *sums;
};

/* p = fma(isum, d, p), p = fma(tsum, m, p) of a run that ends with block j, of types without small integers. */
template <int dtype>
static __device__ __forceinline__ void qrn_exact_end_run(const qrn_panel_form &form, const qrn_exact_stage &st, int j,
                                                         bool is_first, qrn_exact_sums &s)
{
    constexpr qrn_form f = qrn_form_of(dtype);
    const float *sums = (const float *)st.sums + 8 * (qrn_lane() % 4) + j; /* of the thread's columns */
    float d[2], m[2];
#pragma unroll
    for (int r = 0; r < 2; r++) qrn_exact_head<dtype>(form, st.panel, st.row + 8 * r, j, d[r], m[r]);
#pragma unroll
    for (int i = 0; i < QRN_EXACT_SUMS; i++) {
        const int r = i % 4 / 2;
        s.p[i] = fmaf(s.e[i], d[r], is_first ? 0.0f : s.p[i]);
        if (qrn_has_min(f)) s.p[i] = fmaf(sums[4 * (i / 4 * 8 + i % 2)], m[r], s.p[i]);
    }
}

/* p of types with small integers, of four results, as mma has them: e, and p where they are sums of other parts. */
template <int dtype>
static __device__ __forceinline__ void qrn_exact_scale(const float (&d)[2], const float (&m)[2], const float (&tsum)[4],
                                                       const float *e, float *p)
{
    constexpr qrn_form f = qrn_form_of(dtype);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float isum = e[i];
        if (qrn_exact_splits(f)) isum = fmaf(p[i], (float)(1 << qrn_exact_low_bits(f)), isum);
        if (qrn_exact_sums_halves(f)) isum = p[i] + isum;
        p[i] = fmaf(isum, d[i / 2], 0.0f);
        if (qrn_exact_has_min_subs(f)) p[i] = fmaf(tsum[i], m[i / 2], p[i]);
    }
}

/* acc = fma(p, d_x, acc). */
template <int dtype>
static __device__ __forceinline__ void qrn_exact_end_panel(const qrn_panel_form &form, const qrn_exact_stage &st,
                                                           qrn_exact_sums &s)
{
    constexpr qrn_form f = qrn_form_of(dtype);
    const uint32_t *sums = (const uint32_t *)st.sums + qrn_lane(); /* eight columns, two halves of block lane % 4 */
    float d[2], m[2];
#pragma unroll
    for (int r = 0; qrn_exact_has_subs(f) && r < 2; r++)
        qrn_exact_head<dtype>(form, st.panel, st.row + 8 * r, 0, d[r], m[r]);
#pragma unroll
    for (int c = 0; c < QRN_EXACT_SUMS / 4; c++) {
        float tsum[4];
        if (qrn_exact_has_min_subs(f)) qrn_mma_f16_short(tsum, st.subs.t[0], st.subs.t[1], sums[32 * c]);
        if (qrn_exact_has_subs(f)) qrn_exact_scale<dtype>(d, m, tsum, s.e + 4 * c, s.p + 4 * c);
#pragma unroll
        for (int i = 0; i < 4; i++) s.acc[4 * c + i] = fmaf(s.p[4 * c + i], st.d[8 * c + i % 2], s.acc[4 * c + i]);
    }
}

/* Of types with levels, or weights that are not split: 32 k at a time, decoded while those before are multiplied, for which
 * MLX codes, whose runs are known when this runs, leave no registers. */
template <int dtype>
static __device__ __forceinline__ void qrn_exact_panel(const qrn_panel_form &form, const qrn_exact_stage &st,
                                                       const qrn_halfwords &load, uint64_t x, qrn_exact_sums &s)
{
    constexpr qrn_form f = qrn_form_of(dtype);
    constexpr int buffers = f.run ? 2 : 1;
    const int run = f.run ? f.run : form.run;
    uint32_t a[buffers][2][4];
    qrn_exact_fragments<dtype>(load, 0, st.subs, a[0][0], a[0][1]);
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const bool begins = j % run == 0 || (qrn_exact_sums_halves(f) && j == 2), ends = (j + 1) % run == 0;
        const uint64_t here = qrn_tile_moved(x, j / 2 * (QRN_EXACT_CODES_BYTES / 2) + j % 2 * 64);
        uint32_t(&own)[2][4] = a[j % buffers], (&next)[2][4] = a[(j + 1) % buffers];
        qrn_wgmma_fence();
        qrn_wgmma_f16<QRN_EXACT_X, QRN_BY_K>(s.e, own[0], here, !begins);
        qrn_wgmma_f16<QRN_EXACT_X, QRN_BY_K>(s.e, own[1], qrn_tile_moved(here, 32), 1);
        qrn_wgmma_commit();
        qrn_wgmma_wait<buffers - 1>();
        qrn_wgmma_hold(next);
        if (j < 3) qrn_exact_fragments<dtype>(load, j + 1, st.subs, next[0], next[1]);
        if (ends || (qrn_exact_sums_halves(f) && j == 1)) {
            qrn_wgmma_wait<0>();
            qrn_wgmma_hold(s.e);
            if (j == 3) qrn_wgmma_hold(own);
        }
        if (ends && !qrn_exact_has_subs(f)) qrn_exact_end_run<dtype>(form, st, j, j + 1 == run, s);
        if (qrn_exact_sums_halves(f) && j == 1)
#pragma unroll
            for (int i = 0; i < QRN_EXACT_SUMS; i++) s.p[i] = s.e[i];
    }
}

/* Of weights that are split: 16 k at a time, lower parts to e, higher ones to p. */
template <int dtype>
static __device__ __forceinline__ void qrn_exact_split_panel(const qrn_exact_stage &st, const qrn_halfwords &load, uint64_t x,
                                                             qrn_exact_sums &s)
{
    uint32_t a[2][2][4];
    qrn_exact_split<dtype>(load, 0, 0, st.subs, a[0][0], a[0][1]);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const uint64_t here = qrn_tile_moved(x, i / 4 * (QRN_EXACT_CODES_BYTES / 2) + i % 4 * 32);
        qrn_wgmma_fence();
        qrn_wgmma_f16<QRN_EXACT_X, QRN_BY_K>(s.e, a[i % 2][0], here, i > 0);
        qrn_wgmma_f16<QRN_EXACT_X, QRN_BY_K>(s.p, a[i % 2][1], here, i > 0);
        qrn_wgmma_commit();
        if (i == 7) break;
        qrn_wgmma_wait<1>();
        qrn_wgmma_hold(a[(i + 1) % 2]);
        qrn_exact_split<dtype>(load, (i + 1) / 2, (i + 1) % 2, st.subs, a[(i + 1) % 2][0], a[(i + 1) % 2][1]);
    }
    qrn_wgmma_wait<0>();
    qrn_wgmma_hold(s.e);
    qrn_wgmma_hold(s.p);
    qrn_wgmma_hold(a[0]);
    qrn_wgmma_hold(a[1]);
}

/* s.acc: sums of a team's rows of weights, of n_panels. */
template <int dtype>
static __device__ __forceinline__ void qrn_exact_sum(const qrn_matmul_exact_params &p, const qrn_exact_ring &ring_of,
                                                     const qrn_panel_form &form, int n_panels, int first_column,
                                                     qrn_ring_place &ring, qrn_exact_sums &s)
{
    const int warp = qrn_warp(), lane = qrn_lane(), row = 16 * (warp % 2) + lane / 4;
#pragma unroll
    for (int i = 0; i < QRN_EXACT_SUMS; i++) s.acc[i] = 0.0f;
#pragma unroll 1
    for (int panel = 0; panel < n_panels; panel++, ring.next(p.n_stages)) {
        const uint8_t *weights = (const uint8_t *)ring_of.panels(ring.at) + warp / 2 * (int)p.job.w.panel_bytes;
        const qrn_halfwords load = {weights + 16 * row + lane % 4 * 2};
        const uint64_t x = qrn_tile_by_k(ring_of.x(ring.at));
        qrn_exact_stage st;
        st.panel = weights, st.row = row;
        st.d = (const float *)ring_of.scales(ring.at) + first_column + 2 * (lane % 4);
        st.sums = ring_of.sums(ring.at);
        qrn_barrier_wait(&ring_of.full[ring.at], ring.parity);
        qrn_exact_load_subs<dtype>(weights, row, st.subs);
        if constexpr (qrn_exact_splits(qrn_form_of(dtype))) qrn_exact_split_panel<dtype>(st, load, x, s);
        else qrn_exact_panel<dtype>(form, st, load, x, s);
        qrn_exact_end_panel<dtype>(form, st, s);
        qrn_barrier_arrive_warp(&ring_of.empty[ring.at]);
    }
}

template <int dtype>
static __device__ __forceinline__ void qrn_exact_multiplies(const qrn_matmul_exact_params &p, const qrn_exact_ring &ring_of,
                                                            uint64_t *out_rows)
{
    const qrn_panel_form form = qrn_panel_form_of(dtype, p.job.w);
    const int thread = (int)threadIdx.x, lane = qrn_lane();
    const uint64_t *own_rows = out_rows + lane % 4 * 2;
    qrn_ring_place ring;
    for (int i = blockIdx.x; i < p.n_work; i += gridDim.x) {
        const qrn_exact_work work = qrn_exact_work_at(p, qrn_exact_weights(1), i);
        const int64_t n = work.weights + thread / 32 * 16 + lane / 4;
        if (work.tile.n_rows == 0) continue;
        qrn_exact_find_rows(p, work, out_rows);
        if (work.n_panels == 0) {
            qrn_store_nan_rows<QRN_EXACT_X>(n, p.job.w.n, own_rows);
            continue;
        }
        qrn_exact_sums s;
        qrn_exact_sum<dtype>(p, ring_of, form, work.n_panels, (int)work.tile.first % 4, ring, s);
        qrn_store_out_rows<QRN_EXACT_X>(s.acc, n, p.job.w.n, own_rows);
    }
}

template <int dtype> static __device__ __forceinline__ void qrn_matmul_exact(const qrn_matmul_exact_params &p)
{
    enum { MULTIPLIERS = QRN_EXACT_MULTIPLIERS / 32 };
    QRN_DYNAMIC_SHARED(char, memory);
    __shared__ qrn_barrier full[QRN_EXACT_MOST_STAGES], empty[QRN_EXACT_MOST_STAGES];
    __shared__ uint64_t out_rows[QRN_EXACT_X];
    const qrn_exact_ring ring = {(char *)qrn_align_shared(memory, QRN_ATOM), full, empty, p.stage_bytes};
    qrn_exact_make_ring(full, empty, p.n_stages);
    /* Registers of 384 threads: 64512. */
    if (qrn_warp() >= MULTIPLIERS) {
        qrn_registers_fewer<24>();
        if (threadIdx.x == QRN_EXACT_MULTIPLIERS) qrn_exact_copies(p, ring);
    } else {
        qrn_registers_more<240>();
        qrn_exact_multiplies<dtype>(p, ring, out_rows);
    }
}

#define QRN_MATMUL_EXACT(NAME)                                                                       \
    QRN_DEVICE_FUNCTION(qrn_matmul_exact_##NAME, QRN_EXACT_THREADS, 1, qrn_matmul_exact_params)      \
    {                                                                                                \
        qrn_matmul_exact<QRN_##NAME>(p);                                                             \
    }

#endif
