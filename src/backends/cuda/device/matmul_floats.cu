/* SPDX-License-Identifier: MIT
 * Products of plain floats in rows with float32 activations.
 *
 * Weights 4 lane + 128 i + j of a row, and those of x, are lane's, which adds them in that order; then the
 * lanes' sums are added as qrn_warp_sum does: the bits of an output, whatever else is in the call.
 *
 * Few rows of x are bound by reading weights: a warp has a row of them, with AHEAD loads of 16 bytes a
 * lane on their way, the first of them before what was launched before has ended.  Many rows of x are
 * bound by arithmetic: a warp has 8 rows of weights and 8 of x, 64 sums a lane, so that 16 loads from
 * shared memory serve 256 multiply-adds; a block of 16 warps has 64 and 16, of which the next 128 k
 * are copied meanwhile.  Where such blocks are few, those of 4 warps with 4 rows of each are taken. */
#include "backends/cuda/device/matmul_job.cuh"
#include "backends/cuda/device/mma.cuh"
#include "backends/cuda/device/float_dots.cuh"
#include "backends/cuda/matmul_floats_cuda.h"
#include "backends/cuda/moe_joints_cuda.h"

/* A warp's row of weights with up to ROWS rows of x. */
template <int ROWS, int AHEAD>
static __device__ __forceinline__ void few(const qrn_matmul_params &p, const qrn_tile &tile,
                                           const qrn_weight_row &w, float (&acc)[ROWS])
{
    const float *x[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        x[r] = (const float *)qrn_x_row(p, qrn_row_of_tile(p, tile, r < tile.n_rows ? r : 0).i_x);
    float_dots<ROWS, AHEAD>(w, x, tile.n_rows, p.w.k, acc);
}

static __device__ __forceinline__ int64_t warp_of_grid()
{
    return (int64_t)blockIdx.x * (blockDim.x / 32) + qrn_warp();
}

/* Row i of the weights of all tiles. */
template <int ROWS, int AHEAD>
static __device__ __forceinline__ void rows_of_x(const qrn_matmul_params &p, int64_t i)
{
    const int64_t i_tile = i / p.w.n, n = i - i_tile * p.w.n;
    if (i_tile >= p.n_tiles) return;
    if (!p.ids) {
        const qrn_weight_row w = qrn_row_of_weights(p.w, p.w2, qrn_tile_at(p, i_tile).matrix, n);
        for (int64_t at = 128 * qrn_lane(); at < p.w.w.stride[2]; at += 4096) qrn_prefetch(w.blocks + at);
    }
    qrn_grid_waits();
    const qrn_tile tile = qrn_tile_at(p, i_tile);
    float acc[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) acc[r] = tile.matrix == p.n_matrices ? __uint_as_float(0x7fc00000u) : 0.0f;
    if (tile.matrix < p.n_matrices) few<ROWS, AHEAD>(p, tile, qrn_row_of_weights(p.w, p.w2, tile.matrix, n), acc);
    if (qrn_lane()) return;
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        if (r < tile.n_rows) qrn_out_row(p, qrn_row_of_tile(p, tile, r).i_out)[n] = acc[r];
}

QRN_DEVICE_FUNCTION_EARLY(qrn_matmul_floats_1, 128, 1, qrn_matmul_params)
{
    rows_of_x<1, 16>(p, warp_of_grid());
}

QRN_DEVICE_FUNCTION_EARLY(qrn_matmul_floats_4, 128, 1, qrn_matmul_params)
{
    rows_of_x<QRN_MATMUL_ROWS, 4>(p, warp_of_grid());
}

/* A joint of two products, a warp an output. */
QRN_DEVICE_FUNCTION_EARLY(qrn_moe_router, 128, 1, qrn_moe_router_params)
{
    const int64_t i = warp_of_grid(), n = p.first.n_tiles * p.first.w.n;
    rows_of_x<1, 16>(i < n ? p.first : p.second, i < n ? i : i - n);
}

/* --- many rows of x --- */

template <int WEIGHTS, int ROWS, int TILE_, int STAGES> struct cut {
    enum { N_W = WEIGHTS, N_X = ROWS, TILE = TILE_, N_STAGES = STAGES };
    enum { N_THREADS = 32 * (N_W / TILE) * (N_X / TILE) };
};
#define QRN_CUT(WEIGHTS, ROWS, TILE, STAGES) cut<WEIGHTS, ROWS, TILE, STAGES>
typedef QRN_MATMUL_FLOATS_LONG(QRN_CUT) long_cut;
typedef QRN_MATMUL_FLOATS_SHORT(QRN_CUT) short_cut;

template <typename T, typename C> struct stage {
    float x[C::N_X][QRN_PIECE];
    T w[C::N_W][QRN_PIECE];
};

template <typename T, typename C> struct tiles_shared {
    stage<T, C> stages[C::N_STAGES];
    const char *rows[C::N_X + C::N_W]; /* of x, of weights; those past the end are the last again */
};

template <typename T, typename C>
static __device__ __forceinline__ void find_rows(const qrn_matmul_params &p, const qrn_tile &tile,
                                                 int64_t first_w, tiles_shared<T, C> &s)
{
    const int i = (int)threadIdx.x;
    if (i < C::N_X)
        s.rows[i] = qrn_x_row(p, qrn_row_of_tile(p, tile, min(i, tile.n_rows - 1)).i_x);
    else if (i < C::N_X + C::N_W)
        s.rows[i] =
            (const char *)qrn_row_of_weights(p.w, p.w2, tile.matrix, min(first_w + i - C::N_X, p.w.n - 1)).blocks;
}

/* Begins to copy 128 k of some rows from k on, of which n are left there, the others become 0; 16 bytes a
 * thread at a time, all threads as many. */
template <typename T, int N_ROWS, typename C>
static __device__ __forceinline__ void copy_rows(const char *const *rows, T (*to)[QRN_PIECE], int64_t k, int64_t n)
{
    enum { PER_ROW = QRN_PIECE * sizeof(T) / 16, EACH = N_ROWS * PER_ROW / C::N_THREADS };
    static_assert(EACH * C::N_THREADS == N_ROWS * PER_ROW, "threads have equal parts");
    const int at = 16 * ((int)threadIdx.x % PER_ROW), first = (int)threadIdx.x / PER_ROW;
    const int64_t left = n * (int64_t)sizeof(T) - at, from = left > 0 ? k * (int64_t)sizeof(T) + at : 0;
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        const int row = first + j * (C::N_THREADS / PER_ROW);
        qrn_copy16_async((char *)to[row] + at, rows[row] + from, left >= 16 ? 16 : left > 0 ? (int)left : 0);
    }
}

template <typename T, typename C>
static __device__ __forceinline__ void begin_stage(tiles_shared<T, C> &s, int i, int64_t d)
{
    stage<T, C> &to = s.stages[i % C::N_STAGES];
    const int64_t k = (int64_t)i * QRN_PIECE;
    copy_rows<float, C::N_X, C>(s.rows, to.x, k, d - k);
    copy_rows<T, C::N_W, C>(s.rows + C::N_X, to.w, k, d - k);
}

template <bool is_bf16> static __device__ __forceinline__ void four_of(const float *row, float (&out)[4])
{
    const float4 v = *(const float4 *)row;
    out[0] = v.x, out[1] = v.y, out[2] = v.z, out[3] = v.w;
}

/* Two halves as floats, by the one instruction: it differs from qrn_float_of_f16 in what NaNs carry. */
static __device__ __forceinline__ void two_of_f16(uint32_t pair, float &low, float &high)
{
#ifdef QRN_EMULATED
    low = qrn_float_of_f16((uint16_t)pair), high = qrn_float_of_f16((uint16_t)(pair >> 16));
#else
    asm("{ .reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }"
        : "=f"(low), "=f"(high)
        : "r"(pair));
#endif
}

template <bool is_bf16> static __device__ __forceinline__ void four_of(const uint16_t *row, float (&out)[4])
{
    const uint2 v = *(const uint2 *)row;
    if (is_bf16) {
        out[0] = __uint_as_float(v.x << 16), out[1] = __uint_as_float(v.x & 0xffff0000u);
        out[2] = __uint_as_float(v.y << 16), out[3] = __uint_as_float(v.y & 0xffff0000u);
    } else {
        two_of_f16(v.x, out[0], out[1]);
        two_of_f16(v.y, out[2], out[3]);
    }
}

/* 128 k of a tile's rows of weights and of x, of a lane's four k the first n: all of them if `whole`. */
template <bool is_bf16, bool whole, typename T, typename C, int TILE>
static __device__ __forceinline__ void multiply(const stage<T, C> &s, int first_w, int first_x, int64_t n,
                                                float (&acc)[TILE][TILE])
{
    float x[TILE][4];
#pragma unroll
    for (int r = 0; r < TILE; r++) four_of<false>(s.x[first_x + r] + 4 * qrn_lane(), x[r]);
#pragma unroll
    for (int c = 0; c < TILE; c++) {
        float w[4];
        four_of<is_bf16>(s.w[first_w + c] + 4 * qrn_lane(), w);
#pragma unroll
        for (int r = 0; r < TILE; r++) add_four(w, x[r], whole ? 4 : n, acc[c][r]);
    }
}

/* The steps of qrn_warp_sum from `step` on, for N sums at once: a lane keeps half of them and gives the
 * others away, until it has one. */
template <int N, int STEP> static __device__ __forceinline__ void halve(float *x)
{
    const bool upper = N > 1 && qrn_lane() & STEP;
    enum { HALF = N > 1 ? N / 2 : 1 };
#pragma unroll
    for (int i = 0; i < HALF; i++) {
        const float keep = upper ? x[i + N / 2] : x[i], give = upper || N == 1 ? x[i] : x[i + N / 2];
        x[i] = keep + __shfl_xor_sync(QRN_ALL_OF_WARP, give, STEP);
    }
    if constexpr (STEP > 1) halve<HALF, STEP / 2>(x);
}

template <typename T, bool is_bf16, typename C>
static __device__ __forceinline__ void tiles(const qrn_matmul_params &p)
{
    enum { TILE = C::TILE, N_SUMS = TILE * TILE, AHEAD = C::N_STAGES - 1 };
    QRN_DYNAMIC_SHARED(char, memory);
    tiles_shared<T, C> &s = *(tiles_shared<T, C> *)memory;
    const int64_t n_groups = (p.w.n + C::N_W - 1) / C::N_W, i_tile = blockIdx.x / n_groups;
    const int64_t first_w = (blockIdx.x - i_tile * n_groups) * C::N_W;
    const qrn_tile tile = qrn_tile_at(p, i_tile);
    const int warp_w = qrn_warp() % (C::N_W / TILE) * TILE, warp_x = qrn_warp() / (C::N_W / TILE) * TILE;
    float acc[TILE][TILE];
#pragma unroll
    for (int i = 0; i < N_SUMS; i++) acc[i / TILE][i % TILE] = 0.0f;
    find_rows(p, tile, first_w, s); /* which takes divisions: before the launch's turn */
    qrn_grid_waits();
    __syncthreads();
    const int n_pieces = (int)((p.w.k + QRN_PIECE - 1) / QRN_PIECE);
#pragma unroll 1
    for (int i = 0; i < AHEAD; i++) {
        if (i < n_pieces) begin_stage(s, i, p.w.k);
        qrn_copies_commit();
    }
    for (int i = 0; i < n_pieces; i++) {
        qrn_copies_wait<AHEAD - 1>();
        __syncthreads();
        if (i + AHEAD < n_pieces) begin_stage(s, i + AHEAD, p.w.k);
        qrn_copies_commit();
        const stage<T, C> &here = s.stages[i % C::N_STAGES];
        const int64_t left = p.w.k - (int64_t)i * QRN_PIECE;
        if (left >= QRN_PIECE)
            multiply<is_bf16, true>(here, warp_w, warp_x, 4, acc);
        else
            multiply<is_bf16, false>(here, warp_w, warp_x, left - 4 * qrn_lane(), acc);
    }
    float *sums = &acc[0][0];
    halve<N_SUMS, 16>(sums);
    /* Bits of the lane, from the highest, chose halves. */
    enum { N_LEFT = N_SUMS > 32 ? N_SUMS / 32 : 1, LANES = N_SUMS > 32 ? 1 : 32 / N_SUMS };
    if (qrn_lane() % LANES) return;
#pragma unroll
    for (int i = 0; i < N_LEFT; i++) {
        const int at = qrn_lane() / LANES * N_LEFT + i, r = warp_x + at % TILE;
        const int64_t n = first_w + warp_w + at / TILE;
        if (n < p.w.n && r < tile.n_rows) qrn_out_row(p, qrn_row_of_tile(p, tile, r).i_out)[n] = sums[i];
    }
}

#define QRN_TILES_OF(name, T, is_bf16, cut)                           \
    QRN_DEVICE_FUNCTION_EARLY(name, cut::N_THREADS, 1, qrn_matmul_params) \
    {                                                               \
        tiles<T, is_bf16, cut>(p);                                  \
    }
QRN_TILES_OF(qrn_matmul_floats_f32, float, false, long_cut)
QRN_TILES_OF(qrn_matmul_floats_f16, uint16_t, false, long_cut)
QRN_TILES_OF(qrn_matmul_floats_bf16, uint16_t, true, long_cut)
QRN_TILES_OF(qrn_matmul_floats_short_f32, float, false, short_cut)
QRN_TILES_OF(qrn_matmul_floats_short_f16, uint16_t, false, short_cut)
QRN_TILES_OF(qrn_matmul_floats_short_bf16, uint16_t, true, short_cut)
