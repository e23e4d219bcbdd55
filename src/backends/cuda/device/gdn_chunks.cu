/* SPDX-License-Identifier: MIT
 * gdn_chunk_state and gdn_chunk_out: products of 64 rows in float32, bound by FMA.  The state goes from
 * chunk to chunk in the memory of state_out, of which a block has 32 rows: they stay in L2, and any d_k
 * is served, a panel at a time.  gdn_chunk_out has all chunks at once. */
#include "backends/cuda/device/gdn_stages.cuh"

enum { COLUMNS = QRN_GDN_STATE_COLUMNS };

/* One block's rows `first` .. of a head's state. */
struct state_rows {
    const qrn_gdn_stage_params &p;
    int64_t s, h, kh, first;
    __device__ state_rows(const qrn_gdn_stage_params &params) : p(params)
    {
        const int64_t head = blockIdx.x / p.n_slices;
        first = (blockIdx.x - head * p.n_slices) * COLUMNS;
        s = head / p.heads.n_v;
        h = head - s * p.heads.n_v;
        kh = gdn_key_head(p.heads, h);
    }
    __device__ float *row(const qrn_gdn_stage_tensor &t, int64_t j) const
    {
        return (float *)t.data + s * t.stride[0] + h * t.stride[1] + (first + j) * t.stride[2];
    }
    __device__ bool has(int64_t j, int64_t e) const { return first + j < p.d_v && e < p.d_k; }
};

/* S of a panel, [e][j]; what h gets too. */
static __device__ __forceinline__ void load_state(const state_rows &r,
                                                  const qrn_gdn_stage_tensor &from,
                                                  float (*S)[COLUMNS + 1], int64_t e0)
{
    for (int i = threadIdx.x; i < COLUMNS * PANEL; i += STAGE_THREADS) {
        const int e = i % PANEL, j = i / PANEL;
        S[e][j] = r.has(j, e0 + e) ? r.row(from, j)[e0 + e] : 0.0f;
    }
}

/* A thread's sums: rows 8 * (thread / 32) .., column thread % 32 of the block. */
QRN_DEVICE_FUNCTION(qrn_gdn_chunk_state, 256, 2, qrn_gdn_stage_params)
{
    __shared__ __align__(16) float x[PANEL][TURNED]; /* w, then decayed k: [e][t] */
    __shared__ float S[PANEL][COLUMNS + 1], v[GDN_CHUNK][COLUMNS];
    __shared__ double G[GDN_CHUNK];
    const state_rows r(p);
    const int column = qrn_lane(), t0 = 8 * qrn_warp();
    int64_t begin, end, index = 0;
    qrn_sequence(p.sequences, r.s, &begin, &end);
    for (int64_t s = 0; s < r.s; s++) { /* chunks of the sequences before */
        int64_t b, e;
        qrn_sequence(p.sequences, s, &b, &e);
        index += (e - b + GDN_CHUNK - 1) / GDN_CHUNK;
    }
    for (int64_t i = threadIdx.x; i < COLUMNS * p.d_k; i += STAGE_THREADS)
        if (r.has(i / p.d_k, 0))
            r.row(p.state_out, i / p.d_k)[i % p.d_k] = r.row(p.state_in, i / p.d_k)[i % p.d_k];
    for (int64_t token = begin; token < end; token += GDN_CHUNK, index++) {
        const int n = end - token < GDN_CHUNK ? (int)(end - token) : GDN_CHUNK;
        float sum[8];
        __syncthreads();
        stage_load_G(p, G, token, n, r.h);
#pragma unroll
        for (int i = 0; i < 8; i++)
            sum[i] =
                t0 + i < n && r.has(column, 0)
                    ? stage_get(p.u, p.bf16, stage_row(p.u, token + t0 + i, r.h) + r.first + column)
                    : 0.0f;
        for (int64_t e0 = 0; e0 < p.d_k; e0 += PANEL) {
            __syncthreads();
            load_state(r, p.state_out, S, e0);
            stage_turn(x, p.w, p.bf16, stage_row(p.w, token, r.h), p.w.stride[0], n, e0, p.d_k);
            __syncthreads();
            for (int i = threadIdx.x; i < COLUMNS * PANEL && index < p.n_chunks;
                 i += STAGE_THREADS) {
                const int e = i % PANEL, j = i / PANEL;
                if (r.has(j, e0 + e))
                    stage_put(p.h, p.bf16,
                              stage_row(p.h, index, r.h) + (r.first + j) * p.h.stride[2] + e0 + e,
                              S[e][j]);
            }
#pragma unroll 4
            for (int e = 0; e < PANEL; e++) {
                const float y = -S[e][column];
                const float4 a = *(const float4 *)&x[e][t0], b = *(const float4 *)&x[e][t0 + 4];
                const float w[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
                for (int i = 0; i < 8; i++) sum[i] = fmaf(w[i], y, sum[i]);
            }
        }
#pragma unroll
        for (int i = 0; i < 8; i++) {
            v[t0 + i][column] = t0 + i < n ? sum[i] : 0.0f;
            if (t0 + i < n && r.has(column, 0))
                stage_put(p.v_new, p.bf16,
                          stage_row(p.v_new, token + t0 + i, r.h) + r.first + column, sum[i]);
        }
        const double last = G[n - 1];
        for (int64_t e0 = 0; e0 < p.d_k; e0 += PANEL) {
            __syncthreads();
            load_state(r, p.state_out, S, e0);
            stage_turn(x, p.k, p.bf16, stage_row(p.k, token, r.kh), p.k.stride[0], n, e0, p.d_k);
            __syncthreads();
            for (int i = threadIdx.x; i < GDN_CHUNK * PANEL; i += STAGE_THREADS) {
                const int t = i % GDN_CHUNK;
                if (t < n) x[i / GDN_CHUNK][t] *= stage_exp(last - G[t]);
            }
            __syncthreads();
            /* Here a warp has elements, a thread 4 of them. */
            for (int i = 0; i < PANEL / 8; i++) {
                const int e = qrn_warp() * (PANEL / 8) + i;
                float y = stage_exp(last) * S[e][column];
#pragma unroll 4
                for (int t = 0; t < GDN_CHUNK; t += 4) {
                    const float4 a = *(const float4 *)&x[e][t];
                    y = fmaf(a.x, v[t][column], y);
                    y = fmaf(a.y, v[t + 1][column], y);
                    y = fmaf(a.z, v[t + 2][column], y);
                    y = fmaf(a.w, v[t + 3][column], y);
                }
                S[e][column] = y;
            }
            __syncthreads();
            for (int i = threadIdx.x; i < COLUMNS * PANEL; i += STAGE_THREADS) {
                const int e = i % PANEL, j = i / PANEL;
                if (r.has(j, e0 + e)) r.row(p.state_out, j)[e0 + e] = S[e][j];
            }
        }
    }
}

QRN_DEVICE_FUNCTION(qrn_gdn_chunk_out, 256, 1, qrn_gdn_stage_params)
{
    __shared__ __align__(16) float q[PANEL][TURNED], k[PANEL][TURNED], h[PANEL][TURNED];
    __shared__ __align__(16) float w[GDN_CHUNK][TURNED]; /* [j][i] */
    __shared__ double G[GDN_CHUNK];
    const int64_t item = blockIdx.x / p.n_slices,
                  d0 = (blockIdx.x - item * p.n_slices) * QRN_GDN_OUT_COLUMNS;
    const int64_t index = item / p.heads.n_v, head = item - index * p.heads.n_v,
                  kh = gdn_key_head(p.heads, head);
    const qrn_tile c = stage_chunk(p, index);
    if (!c.exists) return;
    const int64_t token = c.begin + c.first;
    const int n = (int)c.n, x = threadIdx.x % 16 * 4, y = threadIdx.x / 16 * 4;
    const int n_columns =
        p.d_v - d0 < QRN_GDN_OUT_COLUMNS ? (int)(p.d_v - d0) : (int)QRN_GDN_OUT_COLUMNS;
    float out[4][4], dots[4][4];
    stage_clear(out);
    stage_clear(dots);
    stage_load_G(p, G, token, n, head);
    for (int64_t e = 0; e < p.d_k; e += PANEL) {
        __syncthreads();
        stage_turn(q, p.q, p.bf16, stage_row(p.q, token, kh), p.q.stride[0], n, e, p.d_k);
        stage_turn(k, p.k, p.bf16, stage_row(p.k, token, kh), p.k.stride[0], n, e, p.d_k);
        stage_turn(h, p.h, p.bf16, stage_row(p.h, index, head) + d0 * p.h.stride[2], p.h.stride[2],
                   n_columns, e, p.d_k);
        __syncthreads();
        stage_multiply<PANEL>(out, q, h);
        stage_multiply<PANEL>(dots, q, k);
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const bool below = x + j <= y + i && y + i < n;
            w[x + j][y + i] = below ? stage_exp(G[y + i] - G[x + j]) * dots[i][j] : 0.0f;
            out[i][j] *= stage_exp(G[y + i]);
        }
    for (int half = 0; half < GDN_CHUNK; half += PANEL) { /* rows of v_new take the place of keys */
        __syncthreads();
        for (int i = threadIdx.x; i < PANEL * GDN_CHUNK; i += STAGE_THREADS) {
            const int t = half + i / GDN_CHUNK, d = i % GDN_CHUNK;
            k[i / GDN_CHUNK][d] =
                t < n && d < n_columns
                    ? stage_get(p.v_new, p.bf16, stage_row(p.v_new, token + t, head) + d0 + d)
                    : 0.0f;
        }
        __syncthreads();
        stage_multiply<PANEL>(out, w + half, k);
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            if (y + i < n && x + j < n_columns)
                stage_put(p.out, p.bf16, stage_row(p.out, token + y + i, head) + d0 + x + j,
                          p.scale * out[i][j]);
}
