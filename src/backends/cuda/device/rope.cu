/* SPDX-License-Identifier: MIT
 * rope and rope_multi: a block takes a token, whose cosines and sines it works out once for all
 * heads, while what they turn is on its way. They are those of one float32 product, taken in
 * float64: positions go to 2^24. */
#include "backends/cuda/device/rope.cuh"

/* What a thread takes at once of a token's pairs and of the dimensions that stay, which come after
 * the pairs of their head: all of it is asked for before any is stored, for out may be x. */
struct elements {
    enum { EACH = 4 };
    float a[EACH], b[EACH];
    template <typename F>
    static __device__ __forceinline__ void each(const qrn_rope_params &p, int n, int begin, F f)
    {
#pragma unroll
        for (int u = 0; u < EACH; u++) {
            const int k = begin + u * (int)blockDim.x + (int)threadIdx.x;
            if (k >= (int)p.n_heads * n) break;
            f(u, k / n, k % n);
        }
    }
    __device__ __forceinline__ void load(const qrn_rope_params &p, int64_t t, int n, int begin)
    {
        each(p, n, begin, [&](int u, int h, int i) {
            const float *x = (const float *)((const char *)(uintptr_t)p.x.data + t * p.x.stride[1] +
                                             h * p.x.stride[2]);
            const int at = i < p.n_pairs ? i * p.first : i + p.n_pairs;
            a[u] = x[at];
            b[u] = i < p.n_pairs ? x[at + p.second] : 0.0f;
        });
    }
    __device__ __forceinline__ void store(const qrn_rope_params &p, int64_t t, int n, int begin,
                                          const float *cosine, const float *sine) const
    {
        each(p, n, begin, [&](int u, int h, int i) {
            float *out = (float *)((char *)(uintptr_t)p.out.data + t * p.out.stride[1] +
                                   h * p.out.stride[2]);
            if (i >= p.n_pairs) {
                out[i + p.n_pairs] = a[u];
                return;
            }
            const int at = i * p.first;
            out[at] = a[u] * cosine[i] - b[u] * sine[i];
            out[at + p.second] = b[u] * cosine[i] + a[u] * sine[i];
        });
    }
};

QRN_DEVICE_FUNCTION(qrn_rope, 256, 4, qrn_rope_params)
{
    __shared__ float cosine[QRN_ROPE_MAX_PAIRS], sine[QRN_ROPE_MAX_PAIRS];
    const int n = p.n_pairs + (p.in_place ? 0 : (int)p.head_dim - 2 * p.n_pairs);
    const int step = elements::EACH * (int)blockDim.x;
    for (int64_t t = blockIdx.x; t < p.n_tokens; t += gridDim.x) {
        elements e;
        e.load(p, t, n, 0);
        __syncthreads();
        for (int i = (int)threadIdx.x; i < p.n_pairs; i += (int)blockDim.x)
            rope_turn(p, t, i, &cosine[i], &sine[i]);
        __syncthreads();
        for (int begin = 0;;) {
            e.store(p, t, n, begin, cosine, sine);
            begin += step;
            if (begin >= (int)p.n_heads * n) break;
            e.load(p, t, n, begin);
        }
    }
}
