/* SPDX-License-Identifier: MIT
 * What attention_mma.cu stands on: its shared memory, how queries, keys and values come there and
 * how they leave it for mma; floats as two halves. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_ATTENTION_MMA_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_ATTENTION_MMA_CUH

#include "backends/cuda/device/attention.cuh"
#include "backends/cuda/device/mma.cuh"

enum { BLOCK = QRN_ATTENTION_BLOCK, THREADS = 256 };

#ifdef QRN_EMULATED
static inline uint32_t pack(float a, float b)
{
    return qrn_f16_of_float(a) | (uint32_t)qrn_f16_of_float(b) << 16;
}
static inline float unpack(uint32_t h)
{
    return qrn_float_of_f16((uint16_t)h);
}
#else
static __device__ __forceinline__ uint32_t pack(float a, float b)
{
    uint32_t h;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(h) : "f"(b), "f"(a));
    return h;
}
static __device__ __forceinline__ float unpack(uint32_t h)
{
    float x;
    asm("{.reg .b16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, l;}" : "=f"(x) : "r"(h));
    return x;
}
#endif

/* Two floats as halves and what those leave. */
static __device__ __forceinline__ void split(float a, float b, uint32_t *high, uint32_t *low)
{
    *high = pack(a, b);
    *low = pack(a - unpack(*high), b - unpack(*high >> 16));
}

/* Rows of halves in shared memory: pieces of 16 bytes change places within a row, so that 8 rows of
 * the same columns lie in different banks. */
template <int width>
static __device__ __forceinline__ uint16_t *place(uint16_t *at, int row, int piece)
{
    return at + row * width + ((piece ^ (row & 7)) << 3);
}

template <int D, int RG, int CG> struct mma_shared {
    static const int rows = 16 * RG;
    uint16_t q[2][rows * D]; /* high, low */
    uint16_t k[BLOCK * D], v[BLOCK * D];
    uint16_t p[2][rows * BLOCK];
    float most[rows][CG], sums[rows][8], inverse[rows];
    int64_t bad; /* values of the block that are not finite */
    qrn_attention_tile tile;
    qrn_attention_row row[rows]; /* those past the tile's are as its first */
};

/* The power of two that brings a warp's row of queries, of which `most` is this lane's greatest magnitude, to below 32; what
 * undoes it. */
static __device__ __forceinline__ float query_factor(float most, float *inverse)
{
    const int biased = (int)(__float_as_uint(qrn_warp_max(most)) >> 23);
    const int exponent = biased < 5 ? 5 : biased > 254 ? 254 : biased;
    if (qrn_lane() == 0) *inverse = __uint_as_float((uint32_t)(exponent - 4) << 23);
    return __uint_as_float((uint32_t)(258 - exponent) << 23);
}

/* Weights of row r's keys from scores x and y of two keys of this lane's, eight of a piece: as halves and what those leave,
 * and the sum of the piece. */
template <int n>
static __device__ __forceinline__ void put_weights(float x, float y, float most, int r, int piece, uint16_t (&p)[2][n],
                                                   float *sums)
{
    const float a = qrn_exp2_below(x, most), b = qrn_exp2_below(y, most);
    uint32_t high, low;
    split(a, b, &high, &low);
    const int at = qrn_lane() % 4 * 2;
    *(uint32_t *)(place<BLOCK>(p[0], r, piece) + at) = high;
    *(uint32_t *)(place<BLOCK>(p[1], r, piece) + at) = low;
    float sum = a + b;
    sum += __shfl_xor_sync(QRN_ALL_OF_WARP, sum, 1);
    sum += __shfl_xor_sync(QRN_ALL_OF_WARP, sum, 2);
    if (qrn_lane() % 4 == 0) sums[piece] = sum;
}

/* Queries, each row scaled to below 32. */
template <int D, int RG, int CG>
static __device__ __forceinline__ void
load_queries(const qrn_attention_params &p, const qrn_attention_tile &t, mma_shared<D, RG, CG> &s)
{
    const int lane = qrn_lane();
    for (int r = qrn_warp(); r < 16 * RG; r += 8) {
        float x[D / 32], most = 0.0f;
        const float *q = r < t.n_rows ? qrn_attention_q(p, t, s.row[r]) : nullptr;
#pragma unroll
        for (int i = 0; i < D / 32; i++) {
            x[i] = q ? q[i / 2 * 64 + 2 * lane + i % 2] : 0.0f;
            most = fmaxf(most, fabsf(x[i]));
        }
        const float factor = query_factor(most, &s.inverse[r]);
#pragma unroll
        for (int i = 0; i < D / 64; i++) {
            uint32_t high, low;
            split(x[2 * i] * factor, x[2 * i + 1] * factor, &high, &low);
            const int at = i * 64 + 2 * lane;
            *(uint32_t *)(place<D>(s.q[0], r, at / 8) + at % 8) = high;
            *(uint32_t *)(place<D>(s.q[1], r, at / 8) + at % 8) = low;
        }
    }
}

/* Where a block's keys and values begin; NULL: a page that is not there. */
struct source {
    const uint16_t *k, *v;
};

template <int D, bool paged>
static __device__ __forceinline__ source source_of(const qrn_attention_params &p,
                                                   const qrn_attention_tile &t, int64_t kv_head,
                                                   int64_t block)
{
    if (paged) {
        const uint16_t *page = (const uint16_t *)qrn_paged_page(p.paged, t.batch, block);
        if (!page) return source{nullptr, nullptr};
        return source{page + kv_head * BLOCK * D, page + (p.n_kv_heads + kv_head) * BLOCK * D};
    }
    const int64_t key = block * BLOCK;
    return source{
        (const uint16_t *)p.k + t.batch * p.k_batch + key * p.k_token + kv_head * p.k_head,
        (const uint16_t *)p.v + t.batch * p.v_batch + key * p.v_token + kv_head * p.v_head};
}

/* 16 bytes to shared memory, zeros instead of what must not be read. */
static __device__ __forceinline__ void copy_piece(const qrn_attention_params &p, uint16_t *to,
                                                  const uint16_t *from, bool reads)
{
    const void *somewhere = (const void *)((uintptr_t)p.q & ~(uintptr_t)15);
    qrn_copy16_async(to, reads ? (const void *)from : somewhere, reads ? 16 : 0);
}

/* Keys in pages are [D][64], elsewhere [64][D], of which keys outside of begin .. end - 1 become
 * 0. */
template <int D, bool paged>
static __device__ __forceinline__ void
copy_keys(const qrn_attention_params &p, const uint16_t *from, int begin, int end, uint16_t *to)
{
#pragma unroll 2
    for (int n = 0; n < BLOCK * D / 8 / THREADS; n++) {
        const int i = n * THREADS + (int)threadIdx.x, key = i / (D / 8), piece = i % (D / 8);
        if (paged)
            copy_piece(p, place<BLOCK>(to, i / 8, i % 8), from + i * 8, from != nullptr);
        else
            copy_piece(p, place<D>(to, key, piece), from + key * p.k_token + piece * 8,
                       key >= begin && key < end);
    }
    qrn_copies_commit();
}

template <int D, bool paged>
static __device__ __forceinline__ void
copy_values(const qrn_attention_params &p, const uint16_t *from, int begin, int end, uint16_t *to)
{
    const int64_t stride = paged ? D : p.v_token;
#pragma unroll 2
    for (int n = 0; n < BLOCK * D / 8 / THREADS; n++) {
        const int i = n * THREADS + (int)threadIdx.x, key = i / (D / 8), piece = i % (D / 8);
        copy_piece(p, place<D>(to, key, piece), from + key * stride + piece * 8,
                   from && key >= begin && key < end);
    }
    qrn_copies_commit();
}

/* A weight of 0 times a value that is not finite would be NaN: such values become 0 here, and are
 * added apart (add_bad_values).  Each thread looks at what it has copied, of the first n_keys: others are 0. */
template <int D, int n_threads = THREADS>
static __device__ __forceinline__ void remove_bad_values(uint16_t *v, int64_t *bad, int n_keys = BLOCK)
{
    uint32_t any_bad = 0; /* an exponent of all ones carries into the sign */
#pragma unroll 4
    for (int i = (int)threadIdx.x; i < n_keys * (D / 8); i += n_threads) {
        const uint4 x = *(const uint4 *)place<D>(v, i / (D / 8), i % (D / 8));
        any_bad |= ((x.x & 0x7c007c00u) + 0x04000400u) | ((x.y & 0x7c007c00u) + 0x04000400u) |
                   ((x.z & 0x7c007c00u) + 0x04000400u) | ((x.w & 0x7c007c00u) + 0x04000400u);
    }
    if (!(any_bad & 0x80008000u)) return;
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < n_keys * (D / 8); i += n_threads) {
        uint4 *at = (uint4 *)place<D>(v, i / (D / 8), i % (D / 8));
        const uint4 x = *at;
        const uint32_t words[4] = {x.x, x.y, x.z, x.w};
        bool any = false;
#pragma unroll
        for (int j = 0; j < 4; j++)
            any = any || (words[j] & 0x7c00u) == 0x7c00u || (words[j] & 0x7c000000u) == 0x7c000000u;
        if (!any) continue;
        uint16_t *h = (uint16_t *)at;
        for (int j = 0; j < 8; j++)
            if ((h[j] & 0x7c00) == 0x7c00) h[j] = 0;
        *bad = 1;
    }
}

/* A fragment of 16 rows x 16 columns from column 8 * piece on. */
template <int width>
static __device__ __forceinline__ void load_a(uint32_t (&a)[4], uint16_t *from, int row, int piece)
{
    const int lane = qrn_lane();
    qrn_ldmatrix4(a, place<width>(from, row + lane % 16, piece + lane / 16));
}

/* c += (high + low) b over 32 of the sum's elements; b of its second 16 are in b[2], b[3]. */
static __device__ __forceinline__ void multiply(float (&c)[4], const uint32_t (&high)[2][4],
                                                const uint32_t (&low)[2][4], const uint32_t (&b)[4])
{
    const uint32_t first[2] = {b[0], b[1]}, second[2] = {b[2], b[3]};
    qrn_mma_f16(c, low[0], first);
    qrn_mma_f16(c, high[0], first);
    qrn_mma_f16(c, low[1], second);
    qrn_mma_f16(c, high[1], second);
}

/* The same with a sum of its own for what low gives, c += high b and d += low b: chains of products
 * half as long. */
static __device__ __forceinline__ void multiply_apart(float (&c)[4], float (&d)[4],
                                                      const uint32_t (&high)[2][4],
                                                      const uint32_t (&low)[2][4],
                                                      const uint32_t (&b)[4])
{
    const uint32_t first[2] = {b[0], b[1]}, second[2] = {b[2], b[3]};
    qrn_mma_f16(d, low[0], first);
    qrn_mma_f16(c, high[0], first);
    qrn_mma_f16(d, low[1], second);
    qrn_mma_f16(c, high[1], second);
}

#endif
