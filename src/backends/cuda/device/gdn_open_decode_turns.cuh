/* SPDX-License-Identifier: MIT
 * Which heads each block of gdn_open_decode takes.
 *
 * A head at its chunk's edge takes as long as three others.  Where sequences are at different places, as a server has
 * them, some heads are and some are not: a block begins with those of its own that are, and takes EDGE_COST others less for
 * each.  That is one more than they take, so that blocks with an edge do not end last.
 * Neighbouring blocks have neighbouring heads at a time: memory is slower where each block has a run of its own. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_GDN_OPEN_DECODE_TURNS_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_GDN_OPEN_DECODE_TURNS_CUH

#include "backends/cuda/device/gdn_open_token.cuh"

enum {
    EDGE_COST = 4,
    MOST_ORDERED = 128 /* sequences; where there are more, blocks have many heads each, and take them as they come */
};

/* Sequences at the edge and then the others, both ascending; in shared memory. */
struct decode_order {
    uint8_t sequence[MOST_ORDERED];
    int n_at_edge; /* 0, too, where all are, or where there is no order: then heads are taken as they come */

    /* By a warp; others see it when they have met that. */
    __device__ void find(const int32_t *position, int n_seqs)
    {
        enum { EACH = MOST_ORDERED / 32 }; /* of a lane */
        const int lane = qrn_lane();
        int at[EACH], n_edges = 0, n_before = 0; /* sequences at the edge: of all, and of those that have their place */
        unsigned edges[EACH];
#pragma unroll
        for (int i = 0; i < EACH; i++) at[i] = 32 * i + lane < n_seqs ? position[32 * i + lane] : 0;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            edges[i] = __ballot_sync(QRN_ALL_OF_WARP, at[i] % GDN_CHUNK == GDN_CHUNK - 1);
            n_edges += __popc(edges[i]);
        }
        const bool orders = n_edges && n_edges < n_seqs && n_seqs <= MOST_ORDERED;
#pragma unroll
        for (int i = 0; i < EACH && orders; i++) {
            const int s = 32 * i + lane, before = n_before + __popc(edges[i] & ((1u << lane) - 1));
            if (s < n_seqs) sequence[edges[i] >> lane & 1 ? before : n_edges + s - before] = (uint8_t)s;
            n_before += __popc(edges[i]);
        }
        if (lane == 0) n_at_edge = orders ? n_edges : 0;
        __syncwarp();
    }
};

/* A block's heads, in turn. */
struct decode_turns {
    const uint8_t *sequence; /* of a decode_order */
    int n_v, n_edges, n_others, n_own; /* heads; n_own: of this block, at the edge */
    int all, some, from;               /* rounds in which all blocks take others, in which those from `from` on do */

    __device__ decode_turns(const decode_order &order, int n_at_edge, int n_seqs, int n_value_heads)
        : sequence(order.sequence), n_v(n_value_heads), n_edges(n_at_edge * n_value_heads)
    {
        const int n_blocks = (int)gridDim.x;
        n_others = n_seqs * n_v - n_edges;
        const int each = (int)((unsigned)n_edges / (unsigned)n_blocks),
                  rounds = (int)((unsigned)(n_others + EDGE_COST * n_edges + n_blocks - 1) / (unsigned)n_blocks);
        from = n_edges - each * n_blocks;
        n_own = each + ((int)blockIdx.x < from);
        some = max(0, rounds - EDGE_COST * each);
        all = from ? max(0, some - EDGE_COST) : some;
    }

    struct turn {
        int s, h; /* s < 0: this block has no more heads */
    };
    /* The i-th of this block. */
    __device__ turn at(int i) const
    {
        const int n_blocks = (int)gridDim.x, block = (int)blockIdx.x, r = i - n_own;
        int rank = i * n_blocks + block; /* among heads at the edge, then others */
        if (r >= 0) {
            if (r < all) rank = r * n_blocks + block;
            else if (r < some && block >= from) rank = all * n_blocks + (r - all) * (n_blocks - from) + block - from;
            else rank = n_others;
            if (rank >= n_others) return {-1, 0};
            rank += n_edges;
        }
        const int s = (int)((unsigned)rank / (unsigned)n_v);
        return {n_edges ? sequence[s] : s, rank - s * n_v};
    }
};

#endif
