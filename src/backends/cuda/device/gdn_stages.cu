/* SPDX-License-Identifier: MIT
 * gdn_cumsum, gdn_kkt, gdn_solve, gdn_recompute_wu: a block has a chunk of one head (gdn_kkt: of a key
 * head, whose products its value heads share).  Products are of 64 x 64 in float32, 16 sums a thread
 * from panels in shared memory: bound by FMA; the solve by the latency of its steps, a column of the
 * inverse a thread, in registers. */
#include "backends/cuda/device/gdn_stages.cuh"

QRN_DEVICE_FUNCTION(qrn_gdn_cumsum, 64, 1, qrn_gdn_stage_params)
{
    const qrn_tile c = stage_chunk(p, blockIdx.x);
    if (!c.exists) return;
    for (int64_t h = threadIdx.x; h < p.heads.n_v; h += blockDim.x) {
        double sum = 0.0;
#pragma unroll 4
        for (int t = 0; t < c.n; t++) {
            const int64_t token = c.begin + c.first + t, at = token * p.G.stride[0] + h;
            sum += (double)((const float *)p.g.data)[token * p.g.stride[0] + h];
            if (p.G_f64)
                ((double *)p.G.data)[at] = sum;
            else
                ((float *)p.G.data)[at] = (float)sum;
        }
    }
}

QRN_DEVICE_FUNCTION(qrn_gdn_kkt, 256, 2, qrn_gdn_stage_params)
{
    __shared__ __align__(16) float k[PANEL][TURNED];
    __shared__ double G[GDN_CHUNK];
    const int64_t index = blockIdx.x / p.heads.n_k, kh = blockIdx.x - index * p.heads.n_k;
    const qrn_tile c = stage_chunk(p, index);
    if (!c.exists) return;
    const int64_t token = c.begin + c.first;
    const int n = (int)c.n, x = threadIdx.x % 16 * 4, y = threadIdx.x / 16 * 4;
    float sum[4][4];
    stage_clear(sum);
    for (int64_t e = 0; e < p.d_k; e += PANEL) {
        __syncthreads();
        stage_turn(k, p.k, p.bf16, stage_row(p.k, token, kh), p.k.stride[0], n, e, p.d_k);
        __syncthreads();
        stage_multiply<PANEL>(sum, k, k);
    }
    const int64_t ratio = p.heads.n_v / p.heads.n_k;
    for (int64_t r = 0; r < ratio; r++) {
        const int64_t h = p.heads.tiled ? kh + r * p.heads.n_k : kh * ratio + r;
        __syncthreads();
        stage_load_G(p, G, token, n, h);
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (y + i >= n) break;
            const float beta = stage_beta(p, token + y + i, h);
            float a[4];
#pragma unroll
            for (int j = 0; j < 4; j++)
                a[j] = x + j < y + i ? beta * (stage_exp(G[y + i] - G[x + j]) * sum[i][j]) : 0.0f;
            qrn_store4((float *)p.A.data + stage_row(p.A, token + y + i, h), x, GDN_CHUNK, a);
        }
    }
}

/* The thread's column of (I + A)^-1, row after row. */
QRN_DEVICE_FUNCTION(qrn_gdn_solve, 64, 8, qrn_gdn_stage_params)
{
    __shared__ __align__(16) float A[GDN_CHUNK][GDN_CHUNK];
    const int64_t index = blockIdx.x / p.heads.n_v, h = blockIdx.x - index * p.heads.n_v;
    const qrn_tile c = stage_chunk(p, index);
    if (!c.exists) return;
    const int64_t token = c.begin + c.first;
    const int column = threadIdx.x;
    for (int i = 0; i < GDN_CHUNK; i++) { /* what is not below the diagonal is not read */
        const int64_t at = stage_row(p.A, token + i, h);
        A[i][column] = i < c.n && column < i ? ((const float *)p.A.data)[at + column] : 0.0f;
    }
    __syncthreads();
    float *to = (float *)p.inverse.data + stage_row(p.inverse, token, h) + column;
    float x[GDN_CHUNK];
#pragma unroll
    for (int i = 0; i < GDN_CHUNK; i++) {
        float sum[4] = {i == column ? 1.0f : 0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
        for (int j = 0; j < i; j += 4) {
            const float4 a = *(const float4 *)&A[i][j];
            sum[0] = fmaf(-a.x, x[j], sum[0]);
            if (j + 1 < i) sum[1] = fmaf(-a.y, x[j + 1], sum[1]);
            if (j + 2 < i) sum[2] = fmaf(-a.z, x[j + 2], sum[2]);
            if (j + 3 < i) sum[3] = fmaf(-a.w, x[j + 3], sum[3]);
        }
        x[i] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
        if (i < c.n) to[i * p.inverse.stride[0]] = x[i];
    }
}

/* Columns of w or u, 64 at a time: the inverse times rows that are scaled by factor. */
static __device__ __forceinline__ void
multiply_rows(const qrn_gdn_stage_params &p, const float (*inverse)[TURNED], float (*rows)[TURNED],
              const float *factor, const qrn_gdn_stage_tensor &from, int64_t from_at,
              const qrn_gdn_stage_tensor &to, int64_t to_at, int64_t d, int n)
{
    const int x = threadIdx.x % 16 * 4, y = threadIdx.x / 16 * 4;
    for (int64_t e0 = 0; e0 < d; e0 += GDN_CHUNK) {
        __syncthreads();
        for (int i = threadIdx.x; i < GDN_CHUNK * GDN_CHUNK; i += STAGE_THREADS) {
            const int t = i / GDN_CHUNK, e = i % GDN_CHUNK;
            rows[t][e] =
                t < n && e0 + e < d
                    ? factor[t] * stage_get(from, p.bf16, from_at + t * from.stride[0] + e0 + e)
                    : 0.0f;
        }
        __syncthreads();
        float sum[4][4];
        stage_clear(sum);
        stage_multiply<GDN_CHUNK>(sum, inverse, rows);
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                if (y + i < n && e0 + x + j < d)
                    stage_put(to, p.bf16, to_at + (y + i) * to.stride[0] + e0 + x + j, sum[i][j]);
    }
}

QRN_DEVICE_FUNCTION(qrn_gdn_recompute_wu, 256, 2, qrn_gdn_stage_params)
{
    __shared__ __align__(16) float inverse[GDN_CHUNK][TURNED], rows[GDN_CHUNK][TURNED]; /* [j][i] */
    __shared__ float beta[GDN_CHUNK], decayed[GDN_CHUNK];
    const int64_t index = blockIdx.x / p.heads.n_v, h = blockIdx.x - index * p.heads.n_v,
                  kh = gdn_key_head(p.heads, h);
    const qrn_tile c = stage_chunk(p, index);
    if (!c.exists) return;
    const int64_t token = c.begin + c.first;
    const int n = (int)c.n;
    for (int i = threadIdx.x; i < GDN_CHUNK * GDN_CHUNK; i += STAGE_THREADS) {
        const int t = i / GDN_CHUNK, j = i % GDN_CHUNK;
        inverse[j][t] =
            t < n && j <= t
                ? ((const float *)p.inverse.data)[stage_row(p.inverse, token + t, h) + j]
                : 0.0f;
    }
    if ((int)threadIdx.x < GDN_CHUNK) {
        const int t = threadIdx.x;
        beta[t] = t < n ? stage_beta(p, token + t, h) : 0.0f;
        decayed[t] = t < n ? beta[t] * stage_exp(stage_G(p, token + t, h)) : 0.0f;
    }
    multiply_rows(p, inverse, rows, decayed, p.k, stage_row(p.k, token, kh), p.w,
                  stage_row(p.w, token, h), p.d_k, n);
    multiply_rows(p, inverse, rows, beta, p.v, stage_row(p.v, token, h), p.u,
                  stage_row(p.u, token, h), p.d_v, n);
}
