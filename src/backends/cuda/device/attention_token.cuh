/* SPDX-License-Identifier: MIT
 * What is between two products of an attention layer, of a sequence's one token, as one launch: norms and rope of
 * queries and keys, the token's key and value into their page, attention, sigmoid_mul.
 *
 * Bound by latency, most of it of code: an instruction that runs once takes 5 to 10 clocks, for it comes from beyond
 * the caches.  So rows, pieces and runs are loops that are not unrolled, and what is rare is a function that is called.
 *
 * A block of threads has a token, a key head and a share of the runs of keys; one that has none ends at once, to leave
 * its multiprocessor to the next launch.  Its first warps attend (attention_decode.cuh), the helpers do the rest: they
 * norm and turn the queries of the block's heads; where the block has the newest keys the token's key as well, which
 * goes, with the value, into the page and to where it is attended to; and they have the gates' sigmoids ready.  Of one
 * run sums stay in shared memory; of several they go through memory, and the last block that arrives merges them.  It
 * is the one that stores queries, for until then the others read what those were.
 *
 * Before the launch's turn: tables, angles, weights of norms, and keys are asked for. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_ATTENTION_TOKEN_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_ATTENTION_TOKEN_CUH

#include "backends/cuda/device/attention_decode.cuh"
#include "backends/cuda/device/attention_row.cuh"
#include "backends/cuda/device/pipeline.cuh"
#include "backends/cuda/attention_token_cuda.h"

enum {
    HEADS = QRN_ATTENTION_TOKEN_HEADS,
    ALL_WARPS = QRN_ATTENTION_TOKEN_THREADS / 32, /* those that attend come first */
    HELPERS = ALL_WARPS - WARPS,
    ATTENDING = 1,
    HELPING,
    ROWS /* barriers: of those that attend, of helpers; of all, when rows are made */
};

/* Then the sigmoids of gates, [group][D], and queries as floats, likewise, or this block's runs in their place. */
template <int D> struct __align__(16) token_shared {
    decode_shared<D, HEADS> attention;
    float cosine[D / 2], sine[D / 2], key[D];
    uint16_t k[D], v[D]; /* key and value as pages have them */
    char *page;          /* where they belong; NULL: nowhere */
    int slot;            /* in it */
    int newest;          /* block of keys that has it */
    int begin, end;      /* blocks of keys of this block of threads */
    int first_run, n_runs, n_shares;
    int one_each; /* all sequences have one token */
    int is_last;
};
static_assert(sizeof(token_shared<256>) <= QRN_ATTENTION_TOKEN_BYTES(256), "");
static_assert(sizeof(token_shared<64>) <= QRN_ATTENTION_TOKEN_BYTES(64), "");

/* Whether this block is the last of n that come to a place, which is 0 again then; one thread.  What the others have
 * stored before is seen. */
static __device__ __forceinline__ bool comes_last(uint32_t *place, int n)
{
    uint32_t before;
#ifdef QRN_EMULATED
    before = (*place)++;
#else
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
    asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], 1;"
                 : "=r"(before)
                 : "l"(place)
                 : "memory");
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
#endif
    if ((int)before + 1 < n) return false;
    *place = 0;
    return true;
}

template <int D> struct attention_token {
    static const bool MERGES = false, BEGINS_ANYWAY = true;
    enum { N = (D + QRN_PIECE - 1) / QRN_PIECE };
    typedef norm_part<1, N> part;

    const qrn_attention_token_params &p;
    token_shared<D> &s;
    float *const gates, *const floats; /* behind s */
    const int group, kv_head;
    part weight; /* of the norm of this warp's first row */

    __device__ __forceinline__ attention_token(const qrn_attention_token_params &params,
                                               token_shared<D> &shared)
        : p(params), s(shared), gates((float *)(&shared + 1)),
          floats(gates + params.attention.group * D), group((int)params.attention.group),
          kv_head((int)blockIdx.y)
    {
    }

    /* --- before the launch's turn --- */

    /* By a warp. */
    __device__ __forceinline__ bool has_one_each() const
    {
        const qrn_paged &t = p.attention.paged;
        bool good = true;
#pragma unroll 1
        for (int i = qrn_lane(); i <= (int)t.n_seqs; i += 32) good = good && t.seq_begin[i] == i;
        return __all_sync(QRN_ALL_OF_WARP, good);
    }

    /* The tile of a sequence of one token; by a warp. */
    __device__ __forceinline__ void find_tile(int seq)
    {
        const qrn_paged &pages = p.attention.paged;
        qrn_attention_tile t = {};
        t.batch = t.first_token = seq;
        t.position = pages.position[seq];
        t.n_kv = pages.max_pages * QRN_PAGE;
        t.n_rows = group;
        t.bad = t.position < 0 || t.position >= t.n_kv;
        if (!t.bad) qrn_attention_range(p.attention, t.position, t.n_kv, &t.begin, &t.end);
        t.all_begin = t.begin, t.all_end = t.end;
        if (qrn_lane() < HEADS)
            s.attention.row[qrn_lane()] = {0, kv_head * group + min(qrn_lane(), group - 1), t.begin,
                                           t.end};
        if (qrn_lane()) return;
        s.attention.tile = t;
        s.page = t.bad ? nullptr : qrn_paged_page(pages, seq, t.position / QRN_PAGE);
        s.slot = (int)t.position % QRN_PAGE;
        find_share((int)t.begin, (int)t.end);
    }

    /* Whole runs, as many for each but the last. */
    __device__ __forceinline__ void find_share(int begin, int end)
    {
        const int low = begin / BLOCK, high = (end + BLOCK - 1) / BLOCK,
                  first = QRN_ATTENTION_RUN_OF(low);
        const int n = high ? QRN_ATTENTION_RUN_OF(high - 1) + 1 - first : 0;
        int each = 1;
#pragma unroll 1
        while (each * (int)gridDim.z < n) each++;
        const int from = first + (int)blockIdx.z * each;
        s.first_run = first;
        s.n_runs = n;
        s.n_shares = n <= 1 ? 1 : each == 1 ? n : (n + each - 1) / each;
        s.begin = max(low, QRN_ATTENTION_FIRST_OF(from));
        s.end = min(high, QRN_ATTENTION_FIRST_OF(from + each));
        s.newest = high - 1;
    }

    __device__ __forceinline__ void find_angles(int64_t token, int first, int n_threads)
    {
#pragma unroll 1
        for (int i = first; i < p.rows.rope.n_pairs; i += n_threads)
            rope_turn(p.rows.rope, token, i, &s.cosine[i], &s.sine[i]);
    }

    __device__ __forceinline__ part weight_of(int r) const
    {
        const float *from = r < group ? p.rows.q.weight : p.rows.k.weight;
        part x;
        if (r <= group && from) x.load(from, D);
        return x;
    }

    /* Whether this block has work. */
    __device__ __forceinline__ bool find_work()
    {
        if (qrn_warp() == 0) {
            find_tile((int)blockIdx.x);
        } else if (qrn_warp() == 1) {
            const bool one_each = has_one_each();
            if (qrn_lane() == 0) s.one_each = one_each;
        } else if (qrn_warp() == ALL_WARPS - 1) {
            find_angles(blockIdx.x, qrn_lane(), 32);
        }
        if (p.weights_stay && qrn_warp() >= WARPS) weight = weight_of(qrn_warp() - WARPS);
        __syncthreads();
        return s.one_each && (int)blockIdx.z < s.n_shares;
    }

    __device__ __forceinline__ void ask(const source &first) const
    {
        ask_lines<D>(first);
    }

    /* --- the token's rows --- */

    __device__ __forceinline__ float *row_at(const qrn_attention_rows_side &side, int64_t token,
                                             int head) const
    {
        return side.x + token * side.token + head * side.head;
    }

    /* Row r: of queries, then the key, then the value. */
    __device__ __forceinline__ part load_row(int64_t token, int r) const
    {
        const qrn_kv_append_paged_params &a = p.rows.append;
        const float *from = r < group    ? row_at(p.rows.q, token, kv_head * group + r)
                            : r == group ? row_at(p.rows.k, token, kv_head)
                                         : a.v + token * a.v_token + kv_head * a.v_head;
        part x;
#pragma unroll
        for (int n = 0; n < N; n++) qrn_load4(from, part::begin() + n * part::STRIDE, D, x.v[n]);
        return x;
    }

    /* As pages have it; the value goes there as well. */
    __device__ __forceinline__ void put_halves(const part &x, bool is_value)
    {
        char *page = s.page + ((p.attention.n_kv_heads + kv_head) * QRN_PAGE + s.slot) * D * 2;
#pragma unroll
        for (int n = 0; n < N; n++) {
            const int i = part::begin() + n * part::STRIDE;
            uint16_t h[4];
#pragma unroll
            for (int j = 0; j < 4; j++) h[j] = qrn_f16_of_float(x.v[n][j]);
            const uint2 both = make_uint2(h[0] | (uint32_t)h[1] << 16, h[2] | (uint32_t)h[3] << 16);
            if (i >= D) continue;
            *(uint2 *)((is_value ? s.v : s.k) + i) = both;
            if (is_value && s.page) *(uint2 *)(page + 2 * i) = both;
        }
    }

    /* Row r, by a warp: queries as halves, and as floats in shared memory; the key and the value.  Stored where they
     * were, queries if asked to. */
    __device__ __forceinline__ void make_row(int64_t token, int r, const part &x, bool stores)
    {
        attention_row<N> row(p.rows, token);
        row.x = x;
        if (r <= group) {
            float *const to = r < group ? floats + r * D : s.key;
            row.norm(r < group ? p.rows.q : p.rows.k, weight);
            row.x.store(to, D);
            row.turn(to, s.cosine, s.sine);
            if (stores || r == group)
                row.x.store(r < group ? row_at(p.rows.q, token, kv_head * group + r)
                                      : row_at(p.rows.k, token, kv_head),
                            D);
        }
        if (r < group)
            put_query<D, HEADS>(s.attention, r, row.x);
        else
            put_halves(row.x, r > group);
    }

    /* A helper has each HELPERS-th row; weight is that of its first one, if weights stay. */
    __device__ __forceinline__ void make_rows(int64_t token, int n_rows, bool stores,
                                              bool has_weight)
    {
        int r = qrn_warp() - WARPS;
        part next = load_row(token, r);
        if (!has_weight) weight = weight_of(r);
#pragma unroll 1
        for (; r < n_rows; r += HELPERS) {
            const part x = next;
            if (r + HELPERS < n_rows) next = load_row(token, r + HELPERS);
            make_row(token, r, x, stores);
            weight = weight_of(r + HELPERS);
        }
    }

    /* The key into its page, a column; helpers. */
    __device__ __forceinline__ void append_key() const
    {
        if (!s.page) return;
        uint16_t *const to = (uint16_t *)s.page + kv_head * D * QRN_PAGE + s.slot;
#pragma unroll 1
        for (int d = (int)threadIdx.x - 32 * WARPS; d < D; d += 32 * HELPERS)
            to[d * QRN_PAGE] = s.k[d];
    }

    __device__ __forceinline__ void make_gates(int64_t token)
    {
#pragma unroll 1
        for (int i = qrn_warp() - WARPS; i < N * group; i += HELPERS) {
            const int r = i / N, d = i % N * QRN_PIECE + 4 * qrn_lane();
            float x[4];
            qrn_load4((const float *)qrn_row(p.gate, place_of(token, r)), d, D, x);
            if (d < D)
                *(float4 *)(gates + r * D + d) = make_float4(qrn_sigmoid(x[0]), qrn_sigmoid(x[1]),
                                                             qrn_sigmoid(x[2]), qrn_sigmoid(x[3]));
        }
    }

    /* What is not attention. */
    __device__ __forceinline__ void help()
    {
        const bool has_key = (int)blockIdx.z == s.n_shares - 1;
        qrn_grid_waits();
        make_rows(blockIdx.x, has_key ? group + 2 : group, s.n_shares == 1, p.weights_stay);
        qrn_arrive_some(ROWS, 32 * ALL_WARPS);
        qrn_sync_some(HELPING, 32 * HELPERS);
        if (has_key) append_key();
        make_gates(blockIdx.x);
    }

    /* --- what attention asks for --- */

    __device__ __forceinline__ void share(int *begin, int *end) const
    {
        *begin = s.begin;
        *end = s.end;
    }
    static __device__ __forceinline__ void sync()
    {
        qrn_sync_some(ATTENDING, DECODE_THREADS);
    }
    /* Until helpers have made rows. */
    __device__ __forceinline__ void begin() const
    {
        qrn_sync_some(ROWS, 32 * ALL_WARPS);
    }
    __device__ __forceinline__ bool is_newest(int block) const
    {
        return block == s.newest && s.page;
    }
    __device__ __forceinline__ void have_keys(uint16_t *tile, int block) const
    {
        if (!is_newest(block)) return;
        sync();
#pragma unroll
        for (int d = (int)threadIdx.x; d < D; d += DECODE_THREADS)
            place<BLOCK>(tile, d, s.slot / 8)[s.slot % 8] = s.k[d];
    }
    __device__ __forceinline__ void have_values(uint16_t *tile, int block) const
    {
        const int lines = 8 * DECODE_THREADS / D, nth = (int)threadIdx.x % (D / 8);
        if (!is_newest(block) || (int)threadIdx.x / (D / 8) != s.slot % lines) return;
        *(uint4 *)place<D>(tile, s.slot, nth) = *(const uint4 *)(s.v + 8 * nth);
    }
    __device__ __forceinline__ float *partials_of(int r) const
    {
        if (s.n_shares == 1) return floats + r * QRN_ATTENTION_PARTIAL(D);
        const int64_t row = blockIdx.x * p.attention.n_heads + kv_head * group + r;
        return p.attention.partial + row * p.attention.n_runs * QRN_ATTENTION_PARTIAL(D);
    }
    __device__ __forceinline__ float *partial(int r, int run) const
    {
        return r < group ? partials_of(r) + (run - s.first_run) * QRN_ATTENTION_PARTIAL(D)
                         : nullptr;
    }

    /* --- behind it --- */

    /* A lane's four elements of row r from d on; runs in ascending order.  Those in memory come to where tiles were,
     * as many as there is room for. */
    __device__ __forceinline__ void merge_runs(int r, int d, float (&x)[4]) const
    {
        enum { AHEAD = (int)(sizeof s.attention.tiles / (ALL_WARPS * 4 * QRN_PIECE)) };
        const bool is_near = s.n_shares == 1;
        const float *from = partials_of(r);
        float *const mine =
            (float *)s.attention.tiles + qrn_warp() * (AHEAD * QRN_PIECE) + 4 * qrn_lane();
        float m = QRN_MINUS_INFINITY, l = 0.0f;
        x[0] = x[1] = x[2] = x[3] = 0.0f;
#pragma unroll 1
        for (int left = s.n_runs; left > 0; left -= min(left, (int)AHEAD)) {
            const int n = min(left, (int)AHEAD);
            float2 of = make_float2(0.0f, 0.0f);
            if (qrn_lane() < n)
                of = *(const float2 *)(from + qrn_lane() * QRN_ATTENTION_PARTIAL(D) + D);
            if (!is_near) {
#pragma unroll 1
                for (int i = 0; i < n && d < D; i++)
                    qrn_copy16_async(mine + i * QRN_PIECE, from + i * QRN_ATTENTION_PARTIAL(D) + d,
                                     16);
                qrn_copies_commit();
                qrn_copies_wait<0>();
            }
#pragma unroll 1
            for (int i = 0; i < n; i++) {
                const float run_m = __shfl_sync(QRN_ALL_OF_WARP, of.x, i),
                            run_l = __shfl_sync(QRN_ALL_OF_WARP, of.y, i);
                const qrn_attention_merge merge = qrn_attention_merging(m, run_m, run_l);
                float4 o = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
                if (d < D)
                    o = *(const float4 *)(is_near ? from + i * QRN_ATTENTION_PARTIAL(D) + d
                                                  : mine + i * QRN_PIECE);
                if (merge.empty) continue;
                m = merge.m;
                l = fmaf(run_l, merge.b, l * merge.a);
                x[0] = fmaf(o.x, merge.b, x[0] * merge.a);
                x[1] = fmaf(o.y, merge.b, x[1] * merge.a);
                x[2] = fmaf(o.z, merge.b, x[2] * merge.a);
                x[3] = fmaf(o.w, merge.b, x[3] * merge.a);
            }
            from += n * QRN_ATTENTION_PARTIAL(D);
        }
#pragma unroll
        for (int j = 0; j < 4; j++) x[j] = l == 0.0f ? 0.0f : x[j] / l;
    }

    __device__ __forceinline__ qrn_row_place place_of(int64_t token, int r) const
    {
        return {{0, token, kv_head * group + r}};
    }
    __device__ __forceinline__ float *out_at(int64_t token, int r) const
    {
        const qrn_attention_params &a = p.attention;
        return a.out + token * a.out_token + (kv_head * group + r) * a.out_head;
    }

    /* A lane's four elements of row r times the sigmoids of gates. */
    __device__ __forceinline__ void multiply(int64_t token, int r, int d, const float (&x)[4]) const
    {
        float4 gate = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (d < D) gate = *(const float4 *)(gates + r * D + d);
        const float y[4] = {x[0] * gate.x, x[1] * gate.y, x[2] * gate.z, x[3] * gate.w};
        qrn_store4_as(p.out_dtype, qrn_row(p.out, place_of(token, r)), d, D, y);
    }

    __device__ __forceinline__ bool is_last()
    {
        __syncthreads();
        if (s.n_shares == 1) return true;
        if (threadIdx.x == 0)
            s.is_last =
                comes_last((uint32_t *)(uintptr_t)p.arrivals + blockIdx.x * gridDim.y + blockIdx.y,
                           s.n_shares);
        __syncthreads();
        return s.is_last;
    }

    /* A warp has 128 elements of a row. */
    __device__ __forceinline__ void finish() const
    {
        const int64_t token = blockIdx.x;
#pragma unroll 1
        for (int i = qrn_warp(); i < N * group; i += ALL_WARPS) {
            const int r = i / N, d = i % N * QRN_PIECE + 4 * qrn_lane();
            float x[4];
            merge_runs(r, d, x);
            if (s.attention.tile.bad) x[0] = x[1] = x[2] = x[3] = __uint_as_float(0x7fc00000u);
            multiply(token, r, d, x);
            if (p.keeps) qrn_store4(out_at(token, r), d, D, x);
            if (s.n_shares > 1 && d < D)
                *(float4 *)(row_at(p.rows.q, token, kv_head * group + r) + d) =
                    *(const float4 *)(floats + r * D + d);
        }
    }
};

#endif
