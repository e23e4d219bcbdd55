/* SPDX-License-Identifier: MIT
 * gated_delta_net: for few tokens bound by memory (a state is read and written once, 16 bytes a lane),
 * for many by the latency of a token.  Eight lanes have a row of the state in registers, two rows a
 * lane, so a sum over d_k is a few products and three shuffles; k, q, v and gates of the next tokens
 * are copied to shared memory while these are worked on. */
#include "backends/cuda/device/gdn.cuh"
#include "backends/cuda/gated_delta_net_cuda.h"

enum { LANES = QRN_GDN_LANES, ROWS = QRN_GDN_ROWS, TOKENS = QRN_GDN_TOKENS };

/* What a block works on: rows of the state of one head of one sequence. */
struct item {
    int64_t s, h, kh, row, begin, end;
    __device__ item(const qrn_gated_delta_net_params &p, int rows)
    {
        const int64_t head = blockIdx.x / p.n_blocks;
        row = (blockIdx.x - head * p.n_blocks) * rows;
        s = head / p.x.heads.n_v;
        h = head - s * p.x.heads.n_v;
        kh = gdn_key_head(p.x.heads, h);
        qrn_sequence(p.x.sequences, s, &begin, &end);
    }
};

static __device__ __forceinline__ float decay_of(const qrn_gated_delta_net_params &p, float g)
{
    return qrn_exp(p.positive ? -g : g);
}

/* Over the lanes of a row; all have the sum. */
static __device__ __forceinline__ float sum_of_row(float x)
{
#pragma unroll
    for (int step = 1; step < LANES; step *= 2) x += __shfl_xor_sync(QRN_ALL_OF_WARP, x, step);
    return x;
}

/* Tokens in shared memory; d: d_k rounded up. */
template <int d> struct tokens {
    float k[TOKENS][d], q[TOKENS][d], v[TOKENS][QRN_GDN_BLOCK_ROWS], decay[TOKENS], beta[TOKENS];
};

/* Begins to copy tokens t ..; what is past d_k is zero. */
template <int d>
static __device__ __forceinline__ void
copy_tokens(tokens<d> &to, const qrn_gated_delta_net_params &p, const item &w, int64_t t)
{
    const int n = w.end - t < TOKENS ? (int)(w.end - t) : TOKENS;
    for (int i = threadIdx.x; i < n * (d / 4); i += QRN_GDN_BLOCK_THREADS) {
        const int token = i / (d / 4), at = i % (d / 4) * 4;
        gdn_copy4(to.k[token] + at, gdn_at(p.x.k, t + token, w.kh) + at, p.x.d_k - at);
        gdn_copy4(to.q[token] + at, gdn_at(p.x.q, t + token, w.kh) + at, p.x.d_k - at);
    }
    for (int i = threadIdx.x; i < n * (QRN_GDN_BLOCK_ROWS / 4); i += QRN_GDN_BLOCK_THREADS) {
        const int token = i / (QRN_GDN_BLOCK_ROWS / 4), at = i % (QRN_GDN_BLOCK_ROWS / 4) * 4;
        gdn_copy4(to.v[token] + at, gdn_at(p.x.v, t + token, w.h) + w.row + at,
                  p.x.d_v - w.row - at);
    }
    if ((int)threadIdx.x < n) {
        to.decay[threadIdx.x] = decay_of(p, *gdn_at(p.x.g, t + threadIdx.x, w.h));
        to.beta[threadIdx.x] = *gdn_at(p.x.beta, t + threadIdx.x, w.h);
    }
    qrn_copies_commit();
}

/* N groups of four elements a lane in each of its rows: those at 4 * (lane + LANES * n). */
template <int N> struct state {
    float S[ROWS][N][4];

    __device__ __forceinline__ void step(const tokens<32 * N> &x, int i, int lane, float (&v)[ROWS],
                                         float (&out)[ROWS])
    {
        const float decay = x.decay[i], beta = x.beta[i];
        float sum[ROWS][4];
#pragma unroll
        for (int n = 0; n < N; n++) {
            const float4 k4 = *(const float4 *)&x.k[i][4 * (lane + LANES * n)];
            const float k[4] = {k4.x, k4.y, k4.z, k4.w};
#pragma unroll
            for (int r = 0; r < ROWS; r++)
#pragma unroll
                for (int c = 0; c < 4; c++) {
                    S[r][n][c] *= decay;
                    sum[r][c] = n ? fmaf(S[r][n][c], k[c], sum[r][c]) : S[r][n][c] * k[c];
                }
        }
        float d[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const float predicted = sum_of_row((sum[r][0] + sum[r][1]) + (sum[r][2] + sum[r][3]));
            d[r] = beta * (v[r] - predicted);
        }
#pragma unroll
        for (int n = 0; n < N; n++) {
            const float4 k4 = *(const float4 *)&x.k[i][4 * (lane + LANES * n)];
            const float4 q4 = *(const float4 *)&x.q[i][4 * (lane + LANES * n)];
            const float k[4] = {k4.x, k4.y, k4.z, k4.w}, q[4] = {q4.x, q4.y, q4.z, q4.w};
#pragma unroll
            for (int r = 0; r < ROWS; r++)
#pragma unroll
                for (int c = 0; c < 4; c++) {
                    S[r][n][c] = fmaf(d[r], k[c], S[r][n][c]);
                    sum[r][c] = n ? fmaf(S[r][n][c], q[c], sum[r][c]) : S[r][n][c] * q[c];
                }
        }
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            out[r] = sum_of_row((sum[r][0] + sum[r][1]) + (sum[r][2] + sum[r][3]));
    }
};

template <int N>
static __device__ __forceinline__ void gated_delta_net(const qrn_gated_delta_net_params &p)
{
    enum { D = 32 * N };
    __shared__ __align__(16) tokens<D> x[2];
    const item w(p, QRN_GDN_BLOCK_ROWS);
    const int lane = threadIdx.x % LANES, at = (int)threadIdx.x / LANES * ROWS;
    const int64_t row = w.row + at;
    const float *in = p.state_in + w.s * p.in_stride[0] + w.h * p.in_stride[1];
    float *next = p.state_out + w.s * p.next_stride[0] + w.h * p.next_stride[1];
    if (w.begin < w.end) copy_tokens(x[0], p, w, w.begin);
    state<N> state;
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int n = 0; n < N; n++)
            qrn_load4(in + (row + r) * p.in_stride[2], 4 * (lane + LANES * n),
                      row + r < p.x.d_v ? p.x.d_k : 0, state.S[r][n]);
    int now = 0;
    for (int64_t t = w.begin; t < w.end; t += TOKENS, now ^= 1) {
        if (t + TOKENS < w.end)
            copy_tokens(x[now ^ 1], p, w, t + TOKENS);
        else
            qrn_copies_commit();
        qrn_copies_wait<1>();
        __syncthreads();
        for (int i = 0; i < TOKENS && t + i < w.end; i++) {
            float v[ROWS], out[ROWS];
#pragma unroll
            for (int r = 0; r < ROWS; r++) v[r] = x[now].v[i][at + r];
            state.step(x[now], i, lane, v, out);
            float *to = p.x.out + (t + i) * p.x.out_token + w.h * p.x.out_head + row;
#pragma unroll
            for (int r = 0; r < ROWS; r++)
                if (lane == r && row + r < p.x.d_v) to[r] = p.scale * out[r];
        }
        __syncthreads();
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int n = 0; n < N; n++)
            if (row + r < p.x.d_v)
                qrn_store4(next + (row + r) * p.next_stride[2], 4 * (lane + LANES * n), p.x.d_k,
                           state.S[r][n]);
}

QRN_DEVICE_FUNCTION(qrn_gated_delta_net_32, 128, 8, qrn_gated_delta_net_params)
{
    gated_delta_net<1>(p);
}

QRN_DEVICE_FUNCTION(qrn_gated_delta_net_64, 128, 6, qrn_gated_delta_net_params)
{
    gated_delta_net<2>(p);
}

QRN_DEVICE_FUNCTION(qrn_gated_delta_net_128, 128, 5, qrn_gated_delta_net_params)
{
    gated_delta_net<4>(p);
}

QRN_DEVICE_FUNCTION(qrn_gated_delta_net_256, 128, 3, qrn_gated_delta_net_params)
{
    gated_delta_net<8>(p);
}

/* Any d_k: a warp has a row, which stays in memory; a lane touches its own elements only. */
QRN_DEVICE_FUNCTION(qrn_gated_delta_net_any, 256, 4, qrn_gated_delta_net_params)
{
    const item w(p, 8);
    const int64_t j = w.row + qrn_warp(), lane = qrn_lane();
    if (j >= p.x.d_v) return;
    const float *in = p.state_in + w.s * p.in_stride[0] + w.h * p.in_stride[1] + j * p.in_stride[2];
    float *S = p.state_out + w.s * p.next_stride[0] + w.h * p.next_stride[1] + j * p.next_stride[2];
    for (int64_t i = lane; i < p.x.d_k; i += 32) S[i] = in[i];
    for (int64_t t = w.begin; t < w.end; t++) {
        const float *k = gdn_at(p.x.k, t, w.kh), *q = gdn_at(p.x.q, t, w.kh);
        const float decay = decay_of(p, *gdn_at(p.x.g, t, w.h));
        float predicted = 0.0f, out = 0.0f;
        for (int64_t i = lane; i < p.x.d_k; i += 32)
            predicted = fmaf(decay * S[i], k[i], predicted);
        predicted = qrn_warp_sum(predicted);
        const float d = *gdn_at(p.x.beta, t, w.h) * (gdn_at(p.x.v, t, w.h)[j] - predicted);
        for (int64_t i = lane; i < p.x.d_k; i += 32) {
            const float x = fmaf(d, k[i], decay * S[i]);
            S[i] = x;
            out = fmaf(x, q[i], out);
        }
        out = qrn_warp_sum(out);
        if (lane == 0) p.x.out[t * p.x.out_token + w.h * p.x.out_head + j] = p.scale * out;
    }
}
