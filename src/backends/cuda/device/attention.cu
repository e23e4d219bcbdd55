/* SPDX-License-Identifier: MIT
 * attention and attention_paged for every width and type, in float32.
 *
 * 16 rows and 256 dimensions of the values are a block's: a thread has 4 rows and one key of the
 * scores, then one dimension and 16 rows of the output, whose p lie in shared memory.  It is bound
 * by shared memory and FMA, not by the tensor cores it leaves alone: what is often needed has a
 * kernel of its own (attention_mma.cu). */
#include "backends/cuda/device/attention.cuh"

enum { ROWS = 16, BLOCK = QRN_ATTENTION_BLOCK, THREADS = 256, CHUNK = 64 };

struct plain_shared {
    float q[ROWS][CHUNK];
    float s[ROWS][BLOCK + 1];
    __align__(16) float p[BLOCK][ROWS];
    float m[ROWS], l[ROWS], shrink[ROWS], total_m[ROWS], total_l[ROWS];
};

template <typename T>
static __device__ __forceinline__ float element(const T *x, int64_t i, int type);
template <> __device__ __forceinline__ float element<float>(const float *x, int64_t i, int)
{
    return x[i];
}
template <>
__device__ __forceinline__ float element<uint16_t>(const uint16_t *x, int64_t i, int type)
{
    return type == QRN_BF16 ? qrn_float_of_bf16(x[i]) : qrn_float_of_f16(x[i]);
}

/* Where keys and values of a block are: key j in dimension d at k[j * k_key + d * k_dim]. */
template <typename T> struct kv_block {
    const T *k, *v;
    int64_t k_key, k_dim, v_key;
    bool there;
};

template <typename T>
static __device__ __forceinline__ kv_block<T> kv_block_of(const qrn_attention_params &p,
                                                          const qrn_attention_tile &t,
                                                          int64_t kv_head, int64_t block)
{
    if (p.paged.pages) {
        const char *page = qrn_paged_page(p.paged, t.batch, block);
        const T *k = (const T *)page + kv_head * BLOCK * p.d_k;
        return kv_block<T>{k, k + p.n_kv_heads * BLOCK * p.d_k, 1, BLOCK, p.d_k, page != nullptr};
    }
    const int64_t key = block * BLOCK;
    return kv_block<T>{(const T *)p.k + t.batch * p.k_batch + key * p.k_token + kv_head * p.k_head,
                       (const T *)p.v + t.batch * p.v_batch + key * p.v_token + kv_head * p.v_head,
                       p.k_token,
                       1,
                       p.v_token,
                       true};
}

/* Products of this thread's key with its 4 rows; keys that nobody attends to are not read. */
template <typename T>
static __device__ __forceinline__ void
products(const qrn_attention_params &p, const qrn_attention_tile &t, int64_t kv_head,
         const kv_block<T> &kv, bool reads, plain_shared &s, float (&sum)[4])
{
    const int key = (int)threadIdx.x % BLOCK, rows = (int)threadIdx.x / BLOCK * 4;
    for (int j = 0; j < 4; j++) sum[j] = 0.0f;
    for (int64_t d = 0; d < p.d_k; d += CHUNK) {
        const int n = (int)min(p.d_k - d, (int64_t)CHUNK);
        __syncthreads();
        for (int i = (int)threadIdx.x; i < ROWS * CHUNK; i += THREADS) {
            const int r = i / CHUNK, at = i % CHUNK;
            float x = 0.0f;
            if (r < t.n_rows && at < n)
                x = qrn_attention_q(p, t, qrn_attention_row_of(p, t, kv_head, r))[d + at];
            s.q[r][at] = x;
        }
        __syncthreads();
        if (!reads) continue;
        const T *k = kv.k + key * kv.k_key + d * kv.k_dim;
#pragma unroll 2
        for (int i = 0; i < n; i++) {
            const float x = element<T>(k, i * kv.k_dim, p.kv_type);
#pragma unroll
            for (int j = 0; j < 4; j++) sum[j] = fmaf(s.q[rows + j][i], x, sum[j]);
        }
    }
}

/* A warp's two rows: p of the block, and what the run so far shrinks by. */
static __device__ __forceinline__ void softmax_rows(plain_shared &s)
{
    const int lane = qrn_lane();
    for (int r = 2 * qrn_warp(); r < 2 * qrn_warp() + 2; r++) {
        const float a = s.s[r][lane], b = s.s[r][lane + 32], before = s.m[r];
        const float m = fmaxf(before, qrn_warp_max(fmaxf(a, b)));
        const float pa = qrn_exp2_below(a, m), pb = qrn_exp2_below(b, m);
        const float sum = qrn_warp_sum(pa + pb), shrink = qrn_exp2_below(before, m);
        s.p[lane][r] = pa;
        s.p[lane + 32][r] = pb;
        __syncwarp();
        if (lane == 0) {
            s.m[r] = m;
            s.shrink[r] = shrink;
            s.l[r] = fmaf(s.l[r], shrink, sum);
        }
    }
}

/* Adds the block's values of dimension d to the rows' o; what has no weight is not looked at. */
template <typename T>
static __device__ __forceinline__ void
add_values(const qrn_attention_params &p, const kv_block<T> &kv, int first, int end, int64_t d,
           const plain_shared &s, float (&o)[ROWS])
{
    if (d >= p.d_v) return;
#pragma unroll
    for (int r = 0; r < ROWS; r++) o[r] *= s.shrink[r];
#pragma unroll 2
    for (int j = first; j < end; j++) {
        const float v = element<T>(kv.v, j * kv.v_key + d, p.kv_type);
#pragma unroll
        for (int r = 0; r < ROWS; r += 4) {
            const float4 w = *(const float4 *)&s.p[j][r];
            o[r] = w.x != 0.0f ? fmaf(w.x, v, o[r]) : o[r];
            o[r + 1] = w.y != 0.0f ? fmaf(w.y, v, o[r + 1]) : o[r + 1];
            o[r + 2] = w.z != 0.0f ? fmaf(w.z, v, o[r + 2]) : o[r + 2];
            o[r + 3] = w.w != 0.0f ? fmaf(w.w, v, o[r + 3]) : o[r + 3];
        }
    }
}

template <typename T>
static __device__ void one_run(const qrn_attention_params &p, const qrn_attention_tile &t,
                               int64_t kv_head, int64_t d, int64_t run, plain_shared &s,
                               float (&o)[ROWS])
{
    const int key = (int)threadIdx.x % BLOCK, rows = (int)threadIdx.x / BLOCK * 4;
    const int64_t last = QRN_ATTENTION_FIRST_OF(run + 1) - 1;
#pragma unroll
    for (int r = 0; r < ROWS; r++) o[r] = 0.0f;
    if (threadIdx.x < ROWS) {
        s.m[threadIdx.x] = QRN_MINUS_INFINITY;
        s.l[threadIdx.x] = 0.0f;
    }
    for (int64_t block = QRN_ATTENTION_FIRST_OF(run); block <= last; block++) {
        const int c = qrn_attention_class(p, t, block);
        if (c == 0) continue;
        const int64_t first = block * BLOCK;
        const int begin = (int)max(t.begin - first, (int64_t)0),
                  end = (int)min(t.end - first, (int64_t)BLOCK);
        const kv_block<T> kv = kv_block_of<T>(p, t, kv_head, block);
        float sum[4];
        products(p, t, kv_head, kv, kv.there && key >= begin && key < end, s, sum);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float x = QRN_MINUS_INFINITY;
            if (rows + j < t.n_rows) {
                const qrn_attention_row row = qrn_attention_row_of(p, t, kv_head, rows + j);
                const float mask = c == 2 ? 0.0f : qrn_attention_mask_at(p, t, row, first + key);
                x = mask == QRN_MINUS_INFINITY
                        ? mask
                        : (qrn_attention_score(p, sum[j]) + mask) * QRN_LOG2_E;
                if (!kv.there && x != QRN_MINUS_INFINITY) x = __uint_as_float(0x7fc00000u);
            }
            s.s[rows + j][key] = x;
        }
        __syncthreads();
        softmax_rows(s);
        __syncthreads();
        if (kv.there) add_values(p, kv, begin, end, d, s, o);
        __syncthreads();
    }
}

/* The rows' results: l of 0 is a row without keys. */
static __device__ __forceinline__ void store_rows(const qrn_attention_params &p,
                                                  const qrn_attention_tile &t, int64_t kv_head,
                                                  int64_t d, const float *l, const float (&o)[ROWS])
{
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        if (r >= t.n_rows || d >= p.d_v) continue;
        float *out = qrn_attention_out(p, t, qrn_attention_row_of(p, t, kv_head, r));
        out[d] = t.bad ? __uint_as_float(0x7fc00000u) : l[r] == 0.0f ? 0.0f : o[r] / l[r];
    }
}

static __device__ __forceinline__ void store_partials(const qrn_attention_params &p,
                                                      const qrn_attention_tile &t, int64_t kv_head,
                                                      int64_t d, int64_t run, const plain_shared &s,
                                                      const float (&o)[ROWS])
{
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        if (r >= t.n_rows) continue;
        const qrn_attention_row row = qrn_attention_row_of(p, t, kv_head, r);
        if (run < qrn_attention_first_run(row) || !qrn_attention_reaches(row, (int)run)) continue;
        float *to = qrn_attention_partial(p, t, row, run);
        if (d == 0) {
            to[p.d_v] = s.m[r], to[p.d_v + 1] = s.l[r];
            /* The piece of 16 bytes that the last of o is copied in has no more than that behind it. */
            if (p.d_v % 4 == 1) to[p.d_v + 2] = 0.0f;
        }
        if (d < p.d_v) to[d] = o[r];
    }
}

template <typename T> static __device__ void attention(const qrn_attention_params &p)
{
    __shared__ plain_shared s;
    const qrn_attention_tile t = qrn_attention_tile_of(p, ROWS);
    const int64_t kv_head = blockIdx.y / p.n_parts;
    const int64_t d = (int64_t)(blockIdx.y % p.n_parts) * THREADS + threadIdx.x;
    if (t.n_rows <= 0) return;
    float o[ROWS], total[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) total[r] = 0.0f;
    if (threadIdx.x < ROWS) {
        s.total_m[threadIdx.x] = QRN_MINUS_INFINITY;
        s.total_l[threadIdx.x] = 0.0f;
    }
    const int64_t first = QRN_ATTENTION_RUN_OF(t.begin / BLOCK),
                  end = t.bad || t.end <= t.begin ? -1 : QRN_ATTENTION_RUN_OF((t.end - 1) / BLOCK);
    for (int64_t run = first + blockIdx.z; run <= end; run += gridDim.z) {
        one_run<T>(p, t, kv_head, d, run, s, o);
        if (p.partial) {
            __syncthreads();
            store_partials(p, t, kv_head, d, run, s, o);
            __syncthreads();
            continue;
        }
        __syncthreads();
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const qrn_attention_merge merge = qrn_attention_merging(s.total_m[r], s.m[r], s.l[r]);
            if (!merge.empty) total[r] = fmaf(o[r], merge.b, total[r] * merge.a);
        }
        __syncthreads();
        if (threadIdx.x < ROWS) {
            const int r = (int)threadIdx.x;
            const qrn_attention_merge merge = qrn_attention_merging(s.total_m[r], s.m[r], s.l[r]);
            if (!merge.empty) {
                s.total_l[r] = fmaf(s.l[r], merge.b, s.total_l[r] * merge.a);
                s.total_m[r] = merge.m;
            }
        }
        __syncthreads();
    }
    __syncthreads();
    if (!p.partial) store_rows(p, t, kv_head, d, s.total_l, total);
}

QRN_DEVICE_FUNCTION(qrn_attention_f32, 256, 2, qrn_attention_params)
{
    attention<float>(p);
}

QRN_DEVICE_FUNCTION(qrn_attention_16, 256, 2, qrn_attention_params)
{
    attention<uint16_t>(p);
}
