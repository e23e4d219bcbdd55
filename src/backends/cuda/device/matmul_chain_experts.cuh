/* SPDX-License-Identifier: MIT
 * A chain of products of packed weights (matmul_chain.cuh) in which the products between two norms are those of
 * experts: gates and ups of the chosen ones and of the shared one are one link, what is behind them the next one.
 *
 * Only where weights lie depends on which experts are chosen.  When a block has the norm, some of its warps make
 * logits, each a row of the router's, which it copied to shared memory long before.  The warp that stores waits for
 * logits of all blocks and chooses, as each block does; the thread that copies waits for that.  Gates and ups of the same
 * rows are one group, so that the warp that adds has both sums and makes silu_mul, once.  A slot's panels behind it are
 * whole stages, which the warp that adds sums up by themselves and weighs, by rank. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_MATMUL_CHAIN_EXPERTS_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_MATMUL_CHAIN_EXPERTS_CUH

#include "backends/cuda/device/float_dots.cuh"
#include "backends/cuda/device/matmul_chain_packed.cuh"
#include "backends/cuda/device/moe_route.cuh"
#include "backends/cuda/moe_chain_cuda.h"

/* Static shared memory. */
struct qrn_moe_chain_shared {
    float logits[QRN_MOE_CHAIN_EXPERTS + 4]; /* and the shared expert's gate */
    int32_t ids[QRN_MOE_SLOTS];
    float weights[QRN_MOE_SLOTS + 1]; /* the last one: the shared expert's */
    qrn_barrier chosen, weighed;      /* past phase 0: they are */
    uint64_t gates[2][QRN_MOE_SLOTS + 1]; /* where weights of gates begin, and of ups; last the shared expert's */
    uint64_t down[QRN_MOE_SLOTS + 1];     /* of what is behind them */
};

/* Pieces of a share that are gates or ups: one that has both is two. */
struct qrn_gated_walk : qrn_share_walk {
    int half, piece_end;

    __device__ __forceinline__ void start(const qrn_share &s, int n_panels)
    {
        qrn_share_walk::start(s, n_panels);
        cut();
    }
    __device__ __forceinline__ void next_piece(const qrn_share &s, int n_panels)
    {
        if (end < piece_end) {
            panel = end, end = piece_end;
            return;
        }
        qrn_share_walk::next_piece(s, n_panels);
        cut();
    }
    __device__ __forceinline__ void cut()
    {
        piece_end = end;
        if (panel < half && end > half) end = half;
    }
};

/* As rounded, and as floats for the router. */
template <int dtype, int N> struct qrn_chain_expert_pieces : qrn_chain_q8_pieces<dtype, N> {
    float4 floats[N];

    __device__ __forceinline__ void round(const float (&x)[N][4])
    {
        qrn_chain_q8_pieces<dtype, N>::round(x);
#pragma unroll
        for (int j = 0; j < N; j++) floats[j] = make_float4(x[j][0], x[j][1], x[j][2], x[j][3]);
    }
    __device__ __forceinline__ void put(const qrn_chain_shared &s, int j, int piece) const
    {
        qrn_chain_q8_pieces<dtype, N>::put(s, j, piece);
        ((float4 *)s.normed)[piece * (QRN_PIECE / 4) + qrn_lane()] = floats[j];
    }
};

/* EXPERTS: as many as there may be, a multiple of 32. */
template <int dtype, int EXPERTS> struct qrn_chain_experts : qrn_chain_packed<dtype> {
    enum { NORM_PIECES = QRN_MOE_CHAIN_NORM_PIECES };
    template <int N> using pieces = qrn_chain_expert_pieces<dtype, N>;
    using packed = qrn_chain_packed<dtype>;

    const qrn_moe_chain_params &e;
    qrn_moe_chain_shared &own;

    __device__ __forceinline__ qrn_chain_experts(const qrn_moe_chain_params &params, qrn_moe_chain_shared &shared)
        : packed(params.chain), e(params), own(shared)
    {
    }
    __device__ __forceinline__ float *normed(char *ring) const { return (float *)(ring + e.chain.more_at); }

    /* --- the router --- */

    /* This block's rows, a warp each. */
    __device__ __forceinline__ int row() const { return (int)blockIdx.x + qrn_warp() * (int)gridDim.x; }
    __device__ __forceinline__ char *row_shared(const qrn_chain_shared &s) const
    {
        return (char *)s.normed + e.chain.link[QRN_MOE_CHAIN_GATES].w.k * 4 + qrn_warp() * e.router.row_bytes;
    }
    __device__ __forceinline__ void begins(const qrn_chain_shared &s, bool early) const
    {
        if (early != (e.router.stays != 0) || row() > e.router.n) return;
        const bool is_shared = row() == e.router.n;
        const char *from = (const char *)(uintptr_t)(is_shared ? e.router.shared_w : e.router.w + row() * e.router.row);
        char *to = row_shared(s);
#pragma unroll 1
        for (int at = 16 * qrn_lane(); at < e.router.row_bytes; at += 16 * 32) qrn_copy16_async(to + at, from + at, 16);
        qrn_copies_commit();
    }
    __device__ __forceinline__ uint32_t *logit_words(uint32_t epoch) const
    {
        return qrn_chain_words(e.chain, epoch, e.chain.more_words);
    }
    /* In the order of float_dots. */
    __device__ __forceinline__ float dot(const qrn_chain_shared &s, int n_pieces) const
    {
        enum { AHEAD = 4 };
        qrn_weight_row w = {};
        w.blocks = (const uint8_t *)row_shared(s);
        w.dtype = e.router.dtype;
        const float *const x[1] = {s.normed};
        float acc[1] = {0.0f};
        add_pieces<1, AHEAD>(w, x, 1, n_pieces, acc);
        return qrn_warp_sum(acc[0]);
    }
    __device__ __forceinline__ void is_made(int i, uint32_t epoch, const qrn_chain_shared &s) const
    {
        if (i != QRN_MOE_CHAIN_GATES || row() > e.router.n) return;
        qrn_copies_wait<0>();
        __syncwarp();
        const float logit = dot(s, (int)e.chain.link[i].w.k / QRN_PIECE);
        const uint64_t out = row() < e.router.n ? e.router.logits : e.router.shared_gate;
        if (qrn_lane() == 0) {
            qrn_publish(logit_words(epoch) + row(), qrn_word_of_float(logit));
            if (out) ((float *)(uintptr_t)out)[row() < e.router.n ? row() : 0] = logit;
        }
        __syncwarp();
    }

    /* --- who is chosen: the warp that stores --- */

    /* seen: 0 where a word is waited for. */
    __device__ __forceinline__ void choose(uint32_t epoch, uint32_t not_waited_for) const
    {
        enum { N = EXPERTS / 32 };
        const uint32_t *words = logit_words(epoch);
        uint32_t seen[N + 1];
#pragma unroll
        for (int j = 0; j <= N; j++) seen[j] = qrn_lane() + 32 * j <= e.router.n ? not_waited_for : 1;
        qrn_wait_for_all([&](int j) { return qrn_look_at(words + qrn_lane() + 32 * j); }, seen);
#pragma unroll
        for (int j = 0; j <= N; j++)
            if (qrn_lane() + 32 * j <= e.router.n) own.logits[qrn_lane() + 32 * j] = qrn_float_of_word(seen[j]);
        __syncwarp();
        moe_choose<N>(own.logits, (int)e.router.n, e.n_chosen, own.ids);
        find_weights();
    }
    __device__ __forceinline__ void weigh() const
    {
        moe_weigh<EXPERTS / 32>(own.logits, (int)e.router.n, e.n_chosen, e.normalise, own.ids, own.weights);
        if (qrn_lane() == 0) own.weights[e.n_chosen] = qrn_sigmoid(own.logits[e.router.n]);
    }
    /* A lane's slot. */
    __device__ __forceinline__ void find_weights() const
    {
        const int slot = qrn_lane();
        __syncwarp();
        if (slot == 0) {
            own.gates[0][e.n_chosen] = e.shared_gate.packed, own.gates[1][e.n_chosen] = e.shared_up.packed;
            own.down[e.n_chosen] = e.shared_down.packed;
        }
        if (slot >= e.n_chosen) return;
        const int64_t id = own.ids[slot], in = id * e.chain.link[QRN_MOE_CHAIN_GATES].w.matrix_bytes;
        own.gates[0][slot] = e.gate.packed + in, own.gates[1][slot] = e.up.packed + in;
        own.down[slot] = e.down.packed + id * e.chain.link[QRN_MOE_CHAIN_DOWN].w.matrix_bytes;
    }
    __device__ __forceinline__ void stores(uint32_t epoch, const qrn_chain_shared &) const
    {
        const int lane = qrn_lane();
        /* Once before logits are there, so that the code is. */
#pragma unroll 1
        for (int pass = 0; pass < 2; pass++) {
            choose(epoch, pass ? 0 : 1);
            if (pass) qrn_barrier_arrive_warp(&own.chosen);
            weigh();
            __syncwarp(); /* logits may be written */
        }
        qrn_barrier_arrive_warp(&own.weighed);
        if (blockIdx.x || lane >= e.n_chosen) return;
        if (e.router.ids) ((int32_t *)(uintptr_t)e.router.ids)[lane] = own.ids[lane];
        if (e.router.weights) ((float *)(uintptr_t)e.router.weights)[lane] = own.weights[lane];
    }

    /* --- weights --- */

    static __device__ __forceinline__ qrn_gated_walk walk(const qrn_chain_link &l)
    {
        qrn_gated_walk w;
        w.half = l.x_panels;
        return w;
    }

    /* The first panel of a piece of a share.  Between the two norms it follows from who is chosen: groups of gates and
     * ups are those of slots, one after the other; of what is behind, a slot has as many panels as any other. */
    struct source {
        const uint8_t *from;
        int slot, left;       /* behind gates: stages of the slot that are left */
        int i, group;

        __device__ __forceinline__ source(const qrn_chain_experts &w, int i_link, const qrn_share_walk &walk)
            : slot(0), left(0), i(i_link), group(walk.group)
        {
            if (i == QRN_MOE_CHAIN_GATES) {
                from = w.gates_at(walk);
            } else if (i == QRN_MOE_CHAIN_DOWN) {
                qrn_barrier_wait(&w.own.chosen, 0);
                go_to_slot(w);
            } else {
                from = qrn_panel_at(w.e.chain.link[i].w, 0, walk.group, walk.panel);
            }
        }
        __device__ __forceinline__ void go_to_slot(const qrn_chain_experts &w)
        {
            const bool is_shared = slot == w.e.n_chosen;
            const int64_t group_bytes =
                is_shared ? w.e.shared_group_bytes : w.e.chain.link[QRN_MOE_CHAIN_DOWN].w.group_bytes;
            from = (const uint8_t *)(uintptr_t)w.own.down[slot] + group * group_bytes;
            left = (is_shared ? w.e.ff_shared : w.e.ff) / (QRN_STREAM_PANELS * QRN_PANEL_K);
        }
        __device__ __forceinline__ void copy(const qrn_chain_experts &w, char *to, qrn_barrier *full, int n_left,
                                             uint64_t hint)
        {
            const qrn_matmul_stream_params &stream = w.e.chain.stream;
            const int bytes =
                n_left >= QRN_STREAM_PANELS ? stream.stage_bytes : n_left * (int)stream.job.w.panel_bytes;
            qrn_barrier_arrive_expecting(full, bytes);
            qrn_bulk_copy_hinted(to, from, bytes, full, hint);
            from += stream.stage_bytes;
            if (i != QRN_MOE_CHAIN_DOWN || --left > 0) return;
            slot++;
            qrn_hold(slot); /* ptxas 13.0 reads the next slot but one without it */
            if (slot <= w.e.n_chosen) go_to_slot(w);
        }
    };
    /* Where a piece of gates or of ups begins: all but whose they are is known before experts are chosen. */
    __device__ __forceinline__ const uint8_t *gates_at(const qrn_share_walk &walk) const
    {
        const qrn_chain_link &l = e.chain.link[QRN_MOE_CHAIN_GATES];
        const bool is_up = walk.panel >= l.x_panels;
        const int of_expert = e.ff / QRN_PANEL_ROWS,
                  slot = min((int)((unsigned)walk.group / (unsigned)of_expert), e.n_chosen);
        const uint8_t *at = (const uint8_t *)((walk.group - slot * of_expert) * l.w.group_bytes +
                                              (walk.panel - (is_up ? l.x_panels : 0)) * l.w.panel_bytes);
        const uint64_t *base = &own.gates[is_up][slot];
        qrn_hold(at), qrn_hold(base);
        qrn_barrier_wait(&own.chosen, 0);
        return (const uint8_t *)((uintptr_t)at + (uintptr_t)*base);
    }
    __device__ __forceinline__ void multiply(const qrn_chain_link &l, const qrn_chain_shared &s, int at, int begin,
                                             int n) const
    {
        packed::multiply(l, s, at, begin < l.x_panels ? begin : begin - l.x_panels, n);
    }

    /* --- rows between --- */

    /* Blocks that meet the row round all of it, which is short: what one hands to others would come later. */
    __device__ __forceinline__ void silu_mul(const qrn_chain_row &row, const uint32_t *words, uint32_t *,
                                             const qrn_chain_shared &s) const
    {
        enum { MANY = 5 };
        const qrn_chain_link &l = e.chain.link[QRN_MOE_CHAIN_DOWN];
        const int n = row.n / QRN_PIECE, block = (int)blockIdx.x - l.first_block;
        int is_stored = (e.rounded | e.shared_rounded) != 0;
        if ((unsigned)block >= (unsigned)l.n_blocks) return;
        qrn_hold(is_stored);
        /* Once in vain, so that the code is there when words are. */
#pragma unroll 1
        for (int first = qrn_warp() - MANY * QRN_STREAM_WARPS; first < n; first += MANY * QRN_STREAM_WARPS) {
            uint4 seen[MANY];
            const auto piece = [&](int j) { return first + j * QRN_STREAM_WARPS; };
#pragma unroll
            for (int j = 0; j < MANY; j++)
                seen[j] = first >= 0 && piece(j) < n ? make_uint4(0, 0, 0, 0) : make_uint4(1, 1, 1, 1);
            qrn_wait_for_all([&](int j) { return qrn_look_at_four(words + piece(j) * QRN_PIECE + 4 * qrn_lane()); }, seen);
            /* One after the other: code that has not run yet takes longer to come than to run again. */
#pragma unroll 1
            for (int j = first < 0 ? MANY - 1 : 0; j < MANY && piece(j) < n; j++) {
                const float4 x = qrn_floats_of(seen[0]);
                const float v[1][4] = {{x.x, x.y, x.z, x.w}};
                qrn_chain_q8_pieces<dtype, 1> made;
                made.round(v);
                if (first < 0) break;
                made.put(s, 0, piece(j));
                if (is_stored && piece(j) % l.n_blocks == block) store_piece(made, piece(j));
#pragma unroll
                for (int i = 1; i < MANY; i++) seen[i - 1] = seen[i];
            }
        }
    }
    __device__ __forceinline__ void store_piece(const qrn_chain_q8_pieces<dtype, 1> &made, int piece) const
    {
        const int of_experts = e.n_chosen * e.ff / QRN_PIECE;
        const uint64_t row = piece < of_experts ? e.rounded : e.shared_rounded;
        if (row) made.store(row, 0, piece < of_experts ? piece : piece - of_experts);
    }

    /* --- sums --- */

    __device__ __forceinline__ float *out_of(int i, int group) const
    {
        return i == QRN_MOE_CHAIN_GATES ? nullptr : packed::out_of(i, group);
    }
    __device__ __forceinline__ void add_piece(int i, uint32_t epoch, const qrn_chain_shared &s, const qrn_share_walk &walk,
                                              qrn_ring_place &ring, float (&acc)[1]) const
    {
        if (i == QRN_MOE_CHAIN_DOWN) add_slots(s, walk.group, ring, acc);
        else add_sides(i, epoch, s, walk, ring, acc);
    }
    /* Of gates and ups: first the gate's sum, which is handed over as well where a share ends in ups; of other links the
     * one side that there is. */
    __device__ __forceinline__ void add_sides(int i, uint32_t epoch, const qrn_chain_shared &s, const qrn_share_walk &walk,
                                              qrn_ring_place &ring, float (&acc)[1]) const
    {
        const qrn_chain_link &l = e.chain.link[i];
        const int half = l.x_panels, end = walk.end;
        float *gate_out = side_of(e.gate.out, e.shared_gate.out, walk.group),
              *up_out = side_of(e.up.out, e.shared_up.out, walk.group);
        qrn_hold(gate_out), qrn_hold(up_out); /* parameters come late where they were not read before */
        uint64_t *gates = (uint64_t *)(uintptr_t)e.chain.stream.handover + (gridDim.x + blockIdx.x) * QRN_PANEL_ROWS;
        const uint64_t tag = qrn_chain_tag(epoch, i);
        const bool takes_over = walk.panel >= half;
        uint64_t seen = takes_over ? qrn_load_relaxed(gates + qrn_lane()) : 0;
        float gate = 0.0f, silu = 0.0f;
#pragma unroll 1
        for (int panel = walk.panel, to; panel < end; panel = to) {
            to = panel < half ? min(end, half) : end;
            if (panel >= half) { /* while ups are on their way */
                if (takes_over) gate = qrn_chain_take_over(gates, tag, seen);
                silu = qrn_silu(gate);
                qrn_hold(silu);
            }
            qrn_chain_add_panels(*this, l, s, to - panel, ring, acc);
            if (!l.is_gated) return;
            if (to != half) continue;
            gate = acc[0], acc[0] = 0.0f;
            if (gate_out) *gate_out = gate;
        }
        if (end >= l.n_panels) {
            if (up_out) *up_out = acc[0];
            acc[0] = silu * acc[0];
        } else if (end >= half) {
            qrn_store_relaxed(gates + QRN_PANEL_ROWS + qrn_lane(), tag | __float_as_uint(gate));
        }
    }
    __device__ __forceinline__ float *side_of(uint64_t out, uint64_t shared_out, int group) const
    {
        const int row = group * QRN_PANEL_ROWS, of_experts = e.n_chosen * e.ff;
        float *const to = (float *)(uintptr_t)(row < of_experts ? out : shared_out);
        return to ? to + (row < of_experts ? row : row - of_experts) + qrn_lane() : nullptr;
    }
    /* Of a group behind silu_mul: stages are waited for and read MANY at once, and belong to one slot each. */
    __device__ __forceinline__ void add_slots(const qrn_chain_shared &s, int group, qrn_ring_place &ring,
                                              float (&y)[1]) const
    {
        enum { MANY = 3, STAGE = QRN_STREAM_PANELS * QRN_PANEL_K };
        const qrn_matmul_stream_params &stream = e.chain.stream;
        const int n_chosen = e.n_chosen, of_slot = e.ff / STAGE, of_shared = e.ff_shared / STAGE,
                  n_stages = n_chosen * of_slot + of_shared, d = (int)e.chain.link[QRN_MOE_CHAIN_DOWN].w.n;
        const int n = group * QRN_PANEL_ROWS + qrn_lane();
        float *out = (float *)(uintptr_t)e.down.out + n, *shared_out = (float *)(uintptr_t)e.shared_down.out + n;
        int slot = 0, left = of_slot;
        float acc[1] = {0.0f};
        y[0] = 0.0f;
        qrn_hold(out), qrn_hold(shared_out);
        qrn_barrier_wait(&own.weighed, 0);
#pragma unroll 1
        for (int first = 0; first < n_stages; first += MANY) {
            qrn_stream_stage<1> stage[MANY];
#pragma unroll
            for (int j = 0; j < MANY; j++) {
                if (first + j >= n_stages) break;
                qrn_barrier_wait(&s.stream.places[ring.at].done, ring.parity);
                stage[j].template read<1>(stream, qrn_stream_sums<1>(stream, s.stream, ring.at), 0, 1);
                qrn_barrier_arrive_warp(&s.stream.places[ring.at].taken);
                ring.next(stream.n_stages);
            }
#pragma unroll
            for (int j = 0; j < MANY; j++) {
                if (first + j >= n_stages) break;
                stage[j].add(QRN_STREAM_PANELS, acc);
                if (--left > 0) continue;
                if (n < d) *(slot < n_chosen ? out : shared_out) = acc[0];
                y[0] = fmaf(own.weights[slot], acc[0], y[0]);
                slot++;
                out += d;
                left = slot < n_chosen ? of_slot : of_shared;
                acc[0] = 0.0f;
            }
        }
    }
};

#define QRN_CHAIN_EXPERTS(NAME, EXPERTS)                                                                         \
    QRN_DEVICE_FUNCTION_EARLY(qrn_chain_##EXPERTS##_experts_##NAME, qrn_chain_threads(), 1, qrn_moe_chain_params) \
    {                                                                                                            \
        __shared__ qrn_moe_chain_shared own;                                                                     \
        if (threadIdx.x == 32 * QRN_STREAM_WARPS) {                                                              \
            qrn_barrier_init(&own.chosen, QRN_WARP_ARRIVALS);                                                    \
            qrn_barrier_init(&own.weighed, QRN_WARP_ARRIVALS);                                                   \
        }                                                                                                        \
        qrn_matmul_chain(qrn_chain_experts<QRN_##NAME, EXPERTS>(p, own), p.chain);                               \
    }

#endif
