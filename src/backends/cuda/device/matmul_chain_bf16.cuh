/* SPDX-License-Identifier: MIT
 * bf16 weights in rows in a chain of products (matmul_chain.cuh): a stage is a panel of 32 rows, or two of 16 rows,
 * which is one box of a map.  A warp multiplies it as matmul_few_sm90a.cu does; the row of x lies in shared memory as it
 * does elsewhere. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_MATMUL_CHAIN_BF16_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_MATMUL_CHAIN_BF16_CUH

#include "backends/cuda/device/matmul_chain.cuh"
#include "backends/cuda/device/matmul_few_panel.cuh"
#include "backends/cuda/matmul_chain_bf16_cuda.h"

/* --- rows of x --- */

/* A lane's four elements of each piece. */
template <int N> struct qrn_chain_bf16_pieces {
    uint2 fours[N];

    __device__ __forceinline__ void round(const float (&x)[N][4])
    {
#pragma unroll
        for (int n = 0; n < N; n++)
            fours[n] = make_uint2(qrn_bf16_of_float(x[n][0]) | (uint32_t)qrn_bf16_of_float(x[n][1]) << 16,
                                  qrn_bf16_of_float(x[n][2]) | (uint32_t)qrn_bf16_of_float(x[n][3]) << 16);
    }
    __device__ __forceinline__ void put(const qrn_chain_shared &s, int j, int piece) const
    {
        ((uint2 *)(s.stream.x + piece * QRN_FEW_X))[qrn_lane()] = fours[j];
    }
    __device__ __forceinline__ void store(uint64_t row, int j, int piece) const
    {
        ((uint2 *)(uintptr_t)row)[piece * (QRN_PIECE / 4) + qrn_lane()] = fours[j];
    }
    /* The first one. */
    __device__ __forceinline__ void publish(uint32_t *pieces, int piece, int) const
    {
        qrn_publish_two(pieces + piece * QRN_CHAIN_BF16_WORDS + 2 * qrn_lane(),
                        make_uint2(qrn_word_of_pair(fours[0].x), qrn_word_of_pair(fours[0].y)));
    }
};

/* --- weights --- */

struct qrn_chain_bf16 : qrn_chain_plain {
    enum { TEAM = 1, ADDED = 4, ALIGNMENT = QRN_ATOM };
    template <int N> using pieces = qrn_chain_bf16_pieces<N>;

    const qrn_matmul_chain_bf16_params &p;

    static __device__ __forceinline__ int group_rows(const qrn_chain_link &l) { return l.group_rows; }
    static __device__ __forceinline__ bool has_pairs(const qrn_chain_link &l) { return l.group_rows < QRN_PANEL_ROWS; }
    static __device__ __forceinline__ int stage_panels(const qrn_chain_link &l) { return has_pairs(l) ? 2 : 1; }
    static __device__ __forceinline__ int stages(const qrn_chain_link &l, int n_panels)
    {
        return has_pairs(l) ? (n_panels + 1) / 2 : n_panels;
    }

    /* What is past its end is 0. */
    __device__ __forceinline__ void copy_x(const qrn_chain_shared &s) const
    {
        const qrn_chain_link &l = p.chain.link[0];
        const char *from = (const char *)(uintptr_t)l.x;
        const int n_bytes = 2 * (int)l.w.k;
        for (int at = 16 * (int)threadIdx.x; at < l.n_panels * QRN_FEW_X; at += 16 * 32 * QRN_STREAM_WARPS)
            qrn_copy16_async(s.stream.x + at, at < n_bytes ? from + at : from, max(min(n_bytes - at, 16), 0));
        qrn_copies_commit();
        qrn_copies_wait<0>();
    }
    static __device__ __forceinline__ void take_pieces(const uint32_t *from, int n, const qrn_chain_shared &s)
    {
        enum { MANY = 4, THREADS = 32 * QRN_STREAM_WARPS };
        const int n_fours = n * (QRN_CHAIN_BF16_WORDS / 4);
#pragma unroll 1
        for (int first = (int)threadIdx.x; first - qrn_lane() < n_fours; first += MANY * THREADS) {
            uint4 seen[MANY];
            const auto at = [&](int j) { return first + j * THREADS; };
#pragma unroll
            for (int j = 0; j < MANY; j++) seen[j] = at(j) < n_fours ? make_uint4(0, 0, 0, 0) : make_uint4(1, 1, 1, 1);
            qrn_wait_for_all([&](int j) { return qrn_look_at_four(from + 4 * at(j)); }, seen);
#pragma unroll
            for (int j = 0; j < MANY; j++)
                if (at(j) < n_fours)
                    ((uint4 *)s.stream.x)[at(j)] = make_uint4(~seen[j].x, ~seen[j].y, ~seen[j].z, ~seen[j].w);
        }
    }

    static __device__ __forceinline__ void silu_mul(const qrn_chain_row &row, const uint32_t *words, uint32_t *pieces,
                                                    const qrn_chain_shared &s)
    {
        qrn_chain_silu_mul<qrn_chain_bf16>(row, words, pieces, s);
    }

    /* Stages of a piece of a share, one after the other: a box each, which begins with that 64 k of these rows. */
    struct source {
        const qrn_tensor_map *map;
        int row, at, step;

        __device__ __forceinline__ source(const qrn_chain_bf16 &w, int i, const qrn_share_walk &walk)
            : map(&w.p.w[i]), row(walk.group * w.p.chain.link[i].group_rows), at(walk.panel * 2),
              step(stage_panels(w.p.chain.link[i]) * 2)
        {
        }
        __device__ __forceinline__ void copy(const qrn_chain_bf16 &, char *to, qrn_barrier *full, int, uint64_t hint)
        {
            qrn_barrier_arrive_expecting(full, QRN_CHAIN_BF16_STAGE);
            qrn_tensor_copy_hinted(to, map, 0, row, at, full, hint);
            at += step;
        }
    };

    /* Fragments of x of a panel, all eight columns of which are the row. */
    static __device__ __forceinline__ void load_x(const qrn_chain_shared &s, int panel, uint32_t (&x)[4][4])
    {
        const uint8_t *from = s.stream.x + panel * QRN_FEW_X + qrn_lane() / 8 * 16;
#pragma unroll
        for (int j = 0; j < 4; j++) qrn_ldmatrix4(x[j], from + 64 * j);
    }
    /* 16 rows of the stage's sums. */
    static __device__ __forceinline__ void put_sums(float *sums, const float (&e)[4])
    {
        if (qrn_lane() % 4) return;
        sums[qrn_lane() / 4] = e[0];
        sums[8 + qrn_lane() / 4] = e[2];
    }

    /* n panels of a stage, from panel begin of the group on. */
    __device__ __forceinline__ void multiply(const qrn_chain_link &l, const qrn_chain_shared &s, int at, int begin,
                                             int n) const
    {
        const char *stage = s.stream.ring + at * QRN_CHAIN_BF16_STAGE;
        float *sums = s.stream.sums + at * QRN_PANEL_ROWS, e[2][4];
        uint32_t x[4][4];
        load_x(s, begin, x);
        if (!has_pairs(l)) {
#pragma unroll
            for (int i = 0; i < 2; i++) qrn_few_multiply<QRN_PANEL_ROWS>(stage, i, x, e[i]);
            put_sums(sums, e[0]);
            put_sums(sums + 16, e[1]);
            return;
        }
#pragma unroll 1
        for (int i = 0; i < n; i++) {
            if (i) load_x(s, begin + i, x);
            qrn_few_multiply<16>(stage + i * qrn_few_panel_bytes(16), 0, x, e[0]);
            put_sums(sums + 16 * i, e[0]);
        }
    }

    /* A lane has a row; of 16 rows two lanes have the same one. */
    template <int N>
    __device__ __forceinline__ void add(const qrn_chain_link &l, const qrn_chain_shared &s, int n, qrn_ring_place &ring,
                                        float (&acc)[1]) const
    {
        const bool pairs = has_pairs(l);
        const int row = pairs ? qrn_lane() % 16 : qrn_lane();
        float e[N][2];
        qrn_barrier *taken[N];
#pragma unroll
        for (int i = 0; i < N; i++) {
            const float *sums = s.stream.sums + ring.at * QRN_PANEL_ROWS;
            taken[i] = &s.stream.places[ring.at].taken;
            qrn_barrier_wait(&s.stream.places[ring.at].done, ring.parity);
            e[i][0] = sums[row], e[i][1] = sums[16 + row % 16];
            ring.next(p.chain.stream.n_stages);
        }
#pragma unroll
        for (int i = 0; i < N; i++) {
            acc[0] += e[i][0];
            if (pairs && (i < N - 1 || n > 1)) acc[0] += e[i][1];
            qrn_barrier_arrive_warp(taken[i]);
        }
    }
    __device__ __forceinline__ void add_piece(int i, uint32_t, const qrn_chain_shared &s, const qrn_share_walk &walk,
                                              qrn_ring_place &ring, float (&acc)[1]) const
    {
        qrn_chain_add_panels(*this, p.chain.link[i], s, walk.end - walk.panel, ring, acc);
    }
    __device__ __forceinline__ float *out_of(int i, int) const { return (float *)(uintptr_t)p.chain.link[i].out; }
};

#endif
