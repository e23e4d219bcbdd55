/* SPDX-License-Identifier: MIT
 * gdn_open_chunk on Hopper, what goes from chunk to chunk (gdn_open_walker.cuh), by blocks of one or
 * two warpgroups of 64 columns each and a warp that loads.
 *
 * Two warpgroups a multiprocessor fill each other's gaps and read k, q and pieces once: 59 KB a
 * chunk for 128 columns against 102.
 *
 * Where few heads leave multiprocessors idle, parts of a sequence are worked on at once: first what
 * each part but the last does to a state (its own, from 0 but in the first part; and its transfer:
 * the same from the identity with v = 0), a warpgroup each, two a block; then they are joined
 * (gdn_open_join_sm90a.cu), then the walk takes all parts with their true states.
 */
#include "backends/cuda/device/gdn_open_walker.cuh"

/* A sequence whose position is out of range. */
static __device__ void fill_nan(const qrn_gdn_wgmma_params &p, const gdn_sequence &q, int h,
                                int first, int width)
{
    if (!p.out_is_bf16) {
        gdn_fill_nan(p.c, q, h, first, width);
        return;
    }
    uint16_t *to = (uint16_t *)p.c.x.out + h * p.c.x.out_head + first;
    for (int64_t i = threadIdx.x; i < q.n * width; i += blockDim.x)
        to[(q.begin + i / width) * p.c.x.out_token + i % width] = 0x7fc0;
}

/* What a block works on.  Of the first part, which begins with the true state, a block has all
 * columns of its own state, of the others half of them and of their transfer. */
template <int n_groups> struct place {
    int64_t item; /* of all sequences' value heads */
    int part, n_parts, first;
    bool transfers;
    __device__ place(const qrn_gdn_wgmma_params &p, bool makes_out)
    {
        enum { SLICES = WIDTH / (COLUMNS * n_groups) };
        const int mine = makes_out ? SLICES * p.n_parts : 2 * (p.n_parts - 1) - 1;
        item = (int)blockIdx.x / mine;
        int at = (int)blockIdx.x - (int)item * mine, slices = SLICES;
        if (!makes_out) at++, slices = 2;
        n_parts = p.n_parts;
        part = at / slices;
        transfers = !makes_out && part > 0;
        first = makes_out || transfers ? at % slices * COLUMNS * (makes_out ? n_groups : 1) : 0;
    }
};

/* The first part's start, before others write there. */
static __device__ void keep_start(qrn_gdn_part &part, const float *state, const float *u,
                                  int n_open)
{
    for (int i = threadIdx.x; i < WIDTH * WIDTH / 4; i += blockDim.x) {
        ((float4 *)part.transfer)[i] = gdn_four_at(state + 4 * i);
        if (i < n_open * WIDTH / 4) ((float4 *)part.u)[i] = gdn_four_at(u + 4 * i);
    }
}

static __device__ __forceinline__ void clear_square(char *square)
{
    for (int i = threadIdx.x; i < SQUARE / 16; i += blockDim.x)
        ((uint4 *)square)[i] = make_uint4(0, 0, 0, 0);
}

template <int n_groups, bool makes_out>
static __device__ __forceinline__ void walk(const qrn_gdn_wgmma_params &p, char *memory)
{
    typedef wgmma_shared<n_groups, makes_out> shared;
    enum { STAGES = shared::STAGES };
    __shared__ gdn_sequence sequence;
    const place<n_groups> at(p, makes_out);
    const int64_t n_items = p.n_k_heads * p.ratio, s = at.item / n_items,
                  mine = at.item - s * n_items;
    const int of_launch = (int)mine / p.ratio, kh = (int)p.first_k_head + of_launch,
              h = gdn_value_head(p, kh, (int)mine - of_launch * p.ratio);
    shared &z = *(shared *)qrn_align_shared(memory, QRN_ATOM);
    if (threadIdx.x == 0) {
        sequence.find(p.c, s);
        for (int i = 0; i < STAGES; i++) {
            qrn_barrier_init(&z.full[i], 1);
            qrn_barrier_init(&z.empty[i], 128 * n_groups);
        }
        qrn_barriers_are_ready();
    }
    for (int n = 0; n < STAGES; n++) {
        clear_square(z.stages[n].inverse);
        if (makes_out) clear_square(z.stages[n].scores);
        if (at.transfers) clear_square(z.stages[n].v + (n_groups - 1) * SQUARE); /* theirs is 0 */
    }
    qrn_fence_async();
    __syncthreads();
    if (sequence.unknown && makes_out && at.part == 0)
        fill_nan(p, sequence, h, at.first, COLUMNS * n_groups);
    if (sequence.unknown || sequence.n == 0) return;
    const int n_waves = sequence.n_segments(), each = (n_waves + at.n_parts - 1) / at.n_parts;
    int first_wave = min(at.part * each, n_waves), last_wave = min(first_wave + each, n_waves);
    /* The last two chunks are of one part: what they leave may be one memory. */
    if (last_wave == n_waves - 1) last_wave = n_waves;
    if (at.part > 0 && first_wave == n_waves - 1) first_wave = n_waves;
    if (makes_out && first_wave == last_wave) return;
    gdn_segment g;
    g.find(p.c, sequence, 0);
    const float *state = g.state + (int64_t)h * WIDTH * WIDTH,
                *u = g.u + (int64_t)h * GDN_CHUNK * WIDTH;
    qrn_gdn_part *const parts = p.parts + at.item * (at.n_parts - 1);
    if (!makes_out && at.part == 0) keep_start(parts[0], state, u, g.open);
    if (makes_out && at.n_parts > 1) {
        state = at.part ? parts[at.part - 1].own : parts[0].transfer;
        u = parts[0].u;
    }
    const int group = (int)(threadIdx.x / 128) % n_groups;
    const bool transfers = at.transfers && group > 0;
    walker<n_groups, makes_out> w{p,
                                  z,
                                  sequence,
                                  h,
                                  kh,
                                  at.first + (at.transfers ? 0 : group * COLUMNS),
                                  at.transfers ? 1 : n_groups,
                                  p.pieces + gdn_first_number(sequence) * n_items + mine,
                                  n_items,
                                  first_wave,
                                  last_wave};
    if (threadIdx.x < 128 * n_groups) {
        if (n_groups > 1) qrn_registers_more<240>();
        float S[64] = {};
        if (transfers)
            w.identity(S);
        else if (makes_out || at.part == 0)
            w.load_state(S, state);
        w.walk(S, u);
        if (makes_out)
            w.leave();
        else
            w.store_state(S, transfers ? parts[at.part].transfer : parts[at.part].own);
    } else {
        if (n_groups > 1) qrn_registers_fewer<24>();
        if (threadIdx.x == 128 * n_groups) w.load_all();
    }
}

QRN_DEVICE_FUNCTION(qrn_gdn_open_walk_64, 160, 1, qrn_gdn_wgmma_params)
{
    QRN_DYNAMIC_SHARED(char, memory);
    walk<1, true>(p, memory);
}

QRN_DEVICE_FUNCTION(qrn_gdn_open_walk_128, 384, 1, qrn_gdn_wgmma_params)
{
    QRN_DYNAMIC_SHARED(char, memory);
    walk<2, true>(p, memory);
}

/* What the parts but the last one of a sequence do to its state. */
QRN_DEVICE_FUNCTION(qrn_gdn_open_parts, 384, 1, qrn_gdn_wgmma_params)
{
    QRN_DYNAMIC_SHARED(char, memory);
    walk<2, false>(p, memory);
}
