/* SPDX-License-Identifier: MIT
 * A joint: rms_norm and rope of queries and of keys, and kv_append_paged, of few tokens.
 *
 * Bound by latency: a warp has a row of one head, which stays in registers from the norm to the page,
 * and passes through shared memory once, where the other half of a pair is another lane's.  Cosines and
 * sines, in float64, and pages are worked out before the launch's turn where that can be.  Bits are those of
 * norm_registers.cu, rope.cu and kv_append.cu. */
#include "backends/cuda/device/kv_append.cuh"
#include "backends/cuda/device/norm_part.cuh"
#include "backends/cuda/device/rope.cuh"
#include "backends/cuda/attention_rows_cuda.h"

enum { WARPS = QRN_ATTENTION_ROWS_WARPS };

template <int N> struct attention_row {
    const qrn_attention_rows_params &p;
    const int64_t t;
    const int d;
    norm_part<1, N> x;

    __device__ attention_row(const qrn_attention_rows_params &params, int64_t token)
        : p(params), t(token), d((int)params.append.paged.head_dim)
    {
    }

    __device__ __forceinline__ void load_values(int head)
    {
        const float *v = p.append.v + t * p.append.v_token + head * p.append.v_head;
#pragma unroll
        for (int n = 0; n < N; n++) qrn_load4(v, x.begin() + n * x.STRIDE, d, x.v[n]);
    }

    __device__ __forceinline__ void norm(const qrn_attention_rows_side &side,
                                         const norm_part<1, N> &weight)
    {
        const float scale = x.rms_scale(d, side.eps, nullptr);
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                x.v[n][j] *= scale;
                if (side.weight) x.v[n][j] *= weight.v[n][j];
            }
    }

    /* Element i, turned; row is all of it. */
    __device__ __forceinline__ float turned(const float *row, int i, const float *cosine,
                                            const float *sine) const
    {
        const int second = p.rope.second, n = p.rope.n_pairs;
        if (i >= 2 * n) return row[i];
        const bool is_b = p.rope.first == 1 ? i >= n : i % 2 != 0;
        const int pair = p.rope.first == 1 ? i - (is_b ? n : 0) : i / 2,
                  a = i - (is_b ? second : 0);
        return is_b ? row[a + second] * cosine[pair] + row[a] * sine[pair]
                    : row[a] * cosine[pair] - row[a + second] * sine[pair];
    }

    __device__ __forceinline__ void turn(const float *row, const float *cosine, const float *sine)
    {
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int i = x.begin() + n * x.STRIDE + j;
                if (i < d) x.v[n][j] = turned(row, i, cosine, sine);
            }
    }

    /* To the token's slot; of keys a slot is a column. */
    __device__ __forceinline__ void append(int head, bool values, char *page, int slot) const
    {
        if (!page) return;
        page += ((values ? p.append.paged.n_kv_heads : 0) + head) * QRN_PAGE * d *
                (p.append.half ? 2 : 4);
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int i = x.begin() + n * x.STRIDE + j;
                if (i >= d) continue;
                qrn_paged_put(page, p.append.half, values ? slot * d + i : i * QRN_PAGE + slot,
                              x.v[n][j]);
            }
    }
};

/* A warp takes a head of token blockIdx.x: of queries, then of keys, then of values. */
template <int N> static __device__ __forceinline__ void rows(const qrn_attention_rows_params &p)
{
    __shared__ float cosine[QRN_ROPE_MAX_PAIRS], sine[QRN_ROPE_MAX_PAIRS];
    __shared__ __align__(16) float shared[WARPS][N * QRN_PIECE];
    const int n_kv = (int)p.append.paged.n_kv_heads,
              nth = (int)blockIdx.y * WARPS + qrn_warp() - p.n_heads;
    const bool is_query = nth < 0, is_key = !is_query && nth < n_kv,
               is_value = nth >= n_kv && nth < 2 * n_kv;
    const qrn_attention_rows_side &side = is_query ? p.q : p.k;
    const int head = is_query ? nth + p.n_heads : is_key ? nth : nth - n_kv;
    attention_row<N> row(p, blockIdx.x);
    norm_part<1, N> weight;
    float *at = side.x + row.t * side.token + head * side.head;
    int slot = 0;
    if (!p.early) qrn_grid_waits();
    if ((is_query || is_key) && side.weight && 32 * qrn_lane() < row.d) qrn_prefetch(side.weight + 32 * qrn_lane());
    for (int i = (int)threadIdx.x; i < p.rope.n_pairs; i += 32 * WARPS)
        rope_turn(p.rope, row.t, i, &cosine[i], &sine[i]);
    char *page = is_query ? nullptr : qrn_paged_page_of(p.append.paged, row.t, &slot);
    qrn_grid_waits();
    if (is_query || is_key) {
        row.x.load(at, row.d);
        if (side.weight) weight.load(side.weight, row.d);
        row.norm(side, weight);
        row.x.store(shared[qrn_warp()], N * QRN_PIECE);
    }
    if (is_value) row.load_values(head);
    __syncthreads();
    if (is_query || is_key) {
        row.turn(shared[qrn_warp()], cosine, sine);
        row.x.store(at, row.d);
    }
    if (is_key || is_value) row.append(head, is_value, page, slot);
}

QRN_DEVICE_FUNCTION_EARLY(qrn_attention_rows1, 128, 4, qrn_attention_rows_params)
{
    rows<1>(p);
}

QRN_DEVICE_FUNCTION_EARLY(qrn_attention_rows2, 128, 4, qrn_attention_rows_params)
{
    rows<2>(p);
}

QRN_DEVICE_FUNCTION_EARLY(qrn_attention_rows4, 128, 3, qrn_attention_rows_params)
{
    rows<4>(p);
}
