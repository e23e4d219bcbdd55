/* SPDX-License-Identifier: MIT
 * Packed weights in a chain of products (matmul_chain.cuh): a stage is up to four panels, which lie together; rows of x
 * are blocks of Q8_ACT. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_MATMUL_CHAIN_PACKED_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_MATMUL_CHAIN_PACKED_CUH

#include "backends/cuda/device/matmul_chain.cuh"

/* --- rows of x --- */

static_assert(sizeof(qrn_q8_act) == 4 * QRN_CHAIN_Q8_HEAD + QRN_PIECE, "d, four sums of two, 128 codes");

/* What no word of a block of Q8_ACT is. */
enum : uint32_t { QRN_CHAIN_NO_Q8 = 0x80808080u };

/* Where codes of n pieces begin among words that are exchanged, behind d and sums. */
static __device__ __forceinline__ int qrn_chain_codes_at(int n)
{
    return (n * QRN_CHAIN_Q8_HEAD + 3) / 4 * 4;
}

template <int dtype, int N> struct qrn_chain_q8_pieces : qrn_q8_pieces<N> {
    __device__ __forceinline__ void put(const qrn_chain_shared &s, int j, int piece) const
    {
        const int lane = qrn_lane();
        uint8_t *to = s.stream.x + piece * QRN_STREAM_X;
        ((uint32_t *)to)[lane] = this->codes[j];
        if (lane % 8 == 0) qrn_stream_put_sum<dtype>(to, lane / 8, this->sums[j]);
        if (lane == 0) s.stream.d[piece] = this->d[j];
    }
    __device__ __forceinline__ void store(uint64_t row, int j, int piece) const
    {
        qrn_q8_act *to = (qrn_q8_act *)(uintptr_t)row + piece;
        const int lane = qrn_lane();
        ((uint32_t *)to->q)[lane] = this->codes[j];
        if (lane % 8 == 0) ((uint32_t *)to->sum)[lane / 8] = this->sums[j];
        if (lane == 0) to->d = this->d[j];
    }
    /* The first one, of n pieces of all blocks. */
    __device__ __forceinline__ void publish(uint32_t *pieces, int piece, int n) const
    {
        const int lane = qrn_lane();
        uint32_t *head = pieces + piece * QRN_CHAIN_Q8_HEAD;
        qrn_publish(pieces + qrn_chain_codes_at(n) + piece * (QRN_PIECE / 4) + lane, this->codes[0] ^ QRN_CHAIN_NO_Q8);
        if (lane % 8 == 0) qrn_publish(head + 1 + lane / 8, this->sums[0] ^ QRN_CHAIN_NO_Q8);
        if (lane == 0) qrn_publish(head, __float_as_uint(this->d[0]) ^ QRN_CHAIN_NO_Q8);
    }
};

/* First d and sums, a thread a word, then codes, four words each. */
template <int dtype>
static __device__ __forceinline__ void qrn_chain_take_q8(const uint32_t *pieces, int n, const qrn_chain_shared &s)
{
    enum { MANY = 3, THREADS = 32 * QRN_STREAM_WARPS };
    const int n_codes = n * (QRN_PIECE / 16), n_heads = n * QRN_CHAIN_Q8_HEAD;
    const uint32_t *codes_at = pieces + qrn_chain_codes_at(n);
#pragma unroll 1
    for (int first = (int)threadIdx.x; first - qrn_lane() < n_codes; first += MANY * THREADS) {
        uint4 codes[MANY];
        uint32_t head[MANY];
        const auto at = [&](int j) { return first + j * THREADS; };
#pragma unroll
        for (int j = 0; j < MANY; j++) {
            codes[j] = at(j) < n_codes ? make_uint4(0, 0, 0, 0) : make_uint4(1, 1, 1, 1);
            head[j] = at(j) < n_heads ? 0 : 1;
        }
        qrn_wait_for_all([&](int j) { return qrn_look_at_four(codes_at + 4 * at(j)); }, codes);
        qrn_wait_for_all([&](int j) { return qrn_look_at(pieces + at(j)); }, head);
#pragma unroll
        for (int j = 0; j < MANY; j++) {
            const int i_head = at(j) / QRN_CHAIN_Q8_HEAD, word = at(j) - i_head * QRN_CHAIN_Q8_HEAD;
            if (at(j) < n_codes) {
                codes[j].x ^= QRN_CHAIN_NO_Q8, codes[j].y ^= QRN_CHAIN_NO_Q8;
                codes[j].z ^= QRN_CHAIN_NO_Q8, codes[j].w ^= QRN_CHAIN_NO_Q8;
                *(uint4 *)(s.stream.x + at(j) / 8 * QRN_STREAM_X + at(j) % 8 * 16) = codes[j];
            }
            if (at(j) >= n_heads) continue;
            head[j] ^= QRN_CHAIN_NO_Q8;
            if (word == 0) s.stream.d[i_head] = __uint_as_float(head[j]);
            else qrn_stream_put_sum<dtype>(s.stream.x + i_head * QRN_STREAM_X, word - 1, head[j]);
        }
    }
}

/* --- weights --- */

template <int dtype> struct qrn_chain_packed : qrn_chain_plain {
    enum { TEAM = QRN_STREAM_TEAM, ADDED = 2, ALIGNMENT = 1 };
    template <int N> using pieces = qrn_chain_q8_pieces<dtype, N>;

    const qrn_matmul_chain_params &p;
    const qrn_panel_form form;

    __device__ __forceinline__ qrn_chain_packed(const qrn_matmul_chain_params &params)
        : p(params), form(qrn_panel_form_of(dtype, params.stream.job.w))
    {
    }
    static __device__ __forceinline__ int group_rows(const qrn_chain_link &) { return QRN_PANEL_ROWS; }
    static __device__ __forceinline__ int stage_panels(const qrn_chain_link &) { return QRN_STREAM_PANELS; }
    static __device__ __forceinline__ int stages(const qrn_chain_link &, int n_panels)
    {
        return (n_panels + QRN_STREAM_PANELS - 1) / QRN_STREAM_PANELS;
    }

    /* d and sums a thread a word; codes a warp 128 k, MANY of which are on their way at once: fewer instructions than
     * qrn_stream_copy_row has, which fits into the registers of a single product. */
    __device__ __forceinline__ void copy_x(const qrn_chain_shared &s) const
    {
        enum { MANY = 4, HEAD = QRN_CHAIN_Q8_HEAD };
        const qrn_q8_act *row = (const qrn_q8_act *)(uintptr_t)p.link[0].x;
        const int lane = qrn_lane(), n = p.stream.n_panels;
#pragma unroll 1
        for (int first = 0; first < n; first += MANY * QRN_STREAM_WARPS) {
            uint32_t codes[MANY], head = 0;
            const int i_head = first + (int)threadIdx.x / HEAD, word = (int)threadIdx.x % HEAD;
            const auto at = [&](int j) { return first + qrn_warp() + j * QRN_STREAM_WARPS; };
            const bool has_head = (int)threadIdx.x < HEAD * MANY * QRN_STREAM_WARPS && i_head < n;
#pragma unroll
            for (int j = 0; j < MANY; j++) codes[j] = at(j) < n ? ((const uint32_t *)row[at(j)].q)[lane] : 0;
            if (has_head) head = ((const uint32_t *)(row + i_head))[word];
#pragma unroll
            for (int j = 0; j < MANY; j++)
                if (at(j) < n) ((uint32_t *)(s.stream.x + at(j) * QRN_STREAM_X))[lane] = codes[j];
            if (!has_head) continue;
            if (word == 0) s.stream.d[i_head] = __uint_as_float(head);
            else qrn_stream_put_sum<dtype>(s.stream.x + i_head * QRN_STREAM_X, word - 1, head);
        }
    }
    static __device__ __forceinline__ void take_pieces(const uint32_t *from, int n, const qrn_chain_shared &s)
    {
        qrn_chain_take_q8<dtype>(from, n, s);
    }

    static __device__ __forceinline__ void silu_mul(const qrn_chain_row &row, const uint32_t *words, uint32_t *pieces,
                                                    const qrn_chain_shared &s)
    {
        qrn_chain_silu_mul<qrn_chain_packed>(row, words, pieces, s);
    }

    /* Stages of a piece of a share, one after the other. */
    struct source {
        const uint8_t *from;

        __device__ __forceinline__ source(const qrn_chain_packed &w, int i, const qrn_share_walk &walk)
            : from(qrn_panel_at(w.p.link[i].w, 0, walk.group, walk.panel))
        {
        }
        __device__ __forceinline__ void copy(const qrn_chain_packed &w, char *to, qrn_barrier *full, int left,
                                             uint64_t hint)
        {
            const qrn_matmul_stream_params &stream = w.p.stream;
            const int bytes = left >= QRN_STREAM_PANELS ? stream.stage_bytes : left * (int)stream.job.w.panel_bytes;
            qrn_barrier_arrive_expecting(full, bytes);
            qrn_bulk_copy_hinted(to, from, bytes, full, hint);
            from += stream.stage_bytes;
        }
    };

    /* n panels of a stage, from panel begin of the group on. */
    __device__ __forceinline__ void multiply(const qrn_chain_link &, const qrn_chain_shared &s, int at, int begin,
                                             int n) const
    {
        const int lane = qrn_lane(), panel_bytes = (int)p.stream.job.w.panel_bytes;
        float *sums = qrn_stream_sums<1>(p.stream, s.stream, at);
#pragma unroll 1
        for (int i = qrn_warp() % TEAM; i < n; i += TEAM) {
            const uint8_t *panel = (const uint8_t *)s.stream.ring + at * p.stream.stage_bytes + i * panel_bytes;
            const float d = s.stream.d[begin + i];
            sums[i * QRN_STREAM_P + lane] =
                qrn_stream_panel_of_one<dtype>(form, p.stream.flip, panel, s.stream.x + (begin + i) * QRN_STREAM_X);
            if (lane == 0) sums[qrn_stream_d_at<1>(p.stream, 0) + i] = d;
        }
    }

    template <int N>
    __device__ __forceinline__ void add(const qrn_chain_link &, const qrn_chain_shared &s, int n, qrn_ring_place &ring,
                                        float (&acc)[1]) const
    {
        qrn_stream_add_stages<1, 1, N>(p.stream, s.stream, 0, 1, n, ring, acc);
    }
    __device__ __forceinline__ void add_piece(int i, uint32_t, const qrn_chain_shared &s, const qrn_share_walk &walk,
                                              qrn_ring_place &ring, float (&acc)[1]) const
    {
        qrn_chain_add_panels(*this, p.link[i], s, walk.end - walk.panel, ring, acc);
    }
    __device__ __forceinline__ float *out_of(int i, int) const { return (float *)(uintptr_t)p.link[i].out; }
};

#endif
