/* SPDX-License-Identifier: MIT
 * A joint: ssm_conv_history, l2_norm of q and k, gdn_gates and gdn_open_chunk, one token of few sequences.
 *
 * Blocks are those of gdn_open_few.cuh; each works out what it needs while the state is on its way: a
 * warp k, one q, one its columns of v, one the gates.  Of q and k, which the blocks of several value
 * heads work out, those of the head that keeps the key write memory, their first slice.  None reads
 * what another writes: a new row's place in a ring is not one of the three that are read (the host
 * sees to it that rings have four).
 *
 * A sequence of other than one token, or whose tables cannot be followed in whole pieces, is left to its
 * first block, which does one op after the other. */
#include "backends/cuda/device/gdn_inputs.cuh"
#include "backends/cuda/device/gdn_open_few.cuh"

enum { V_WARP, K_WARP, Q_WARP, GATES_WARP };

struct few_joined {
    const qrn_gdn_inputs_params &p;
    const uint64_t ring;
    int64_t c; /* the first of this lane's four channels */
    bool convolves, writes;
    words x[CONV_AHEAD];
    filter<of_f32> f;

    __device__ few_joined(const qrn_gdn_inputs_params &params)
        : p(params), ring(params.conv.history[blockIdx.y * params.conv.history_stride])
    {
    }

    __device__ __forceinline__ rings<of_f32> ring_of(const few_block &b, const qrn_tile &t) const
    {
        return rings<of_f32>(p.conv, t, c, ring, b.l.position);
    }

    static __device__ __forceinline__ qrn_tile tile_of(const few_block &b)
    {
        return qrn_tile{(int64_t)blockIdx.y, b.l.begin, b.l.begin + 1, 0, 1, 0, true};
    }

    __device__ void begin(few_block &b)
    {
        const int n_k = (int)b.p.x.heads.n_k;
        const int head = b.warp == V_WARP   ? 2 * n_k + b.l.h
                         : b.warp == K_WARP ? n_k + b.l.kh
                                            : b.l.kh;
        const bool is_v = b.warp == V_WARP;
        c = (int64_t)head * D + (is_v ? b.slice * W : 0) + 4 * b.lane;
        convolves = is_v ? 4 * b.lane < W : b.warp != GATES_WARP;
        writes = is_v || (b.slice == 0 && b.l.keeps_key(b.p));
        if (!convolves) return;
        const qrn_tile t = tile_of(b);
        const rings<of_f32> memory = ring_of(b, t);
        x[0] = load_words<of_f32>((const float *)p.conv.x + t.begin * p.conv.x_stride[1], c,
                                  p.conv.n_channels);
#pragma unroll
        for (int k = 0; k < CONV_TAPS - 1; k++) f.before[k] = memory.before(CONV_TAPS - 1 - k);
        f.load_weights(p.conv, c);
    }

    __device__ float token(few_block &b)
    {
        if (b.warp == GATES_WARP) {
            const gdn_gates_pair gates = gdn_gates_of(p.gates, b.l.begin, b.l.h);
            if (b.lane == 0) b.z.gate = gates.g, b.z.beta = gates.beta;
            if (b.lane == 0 && b.slice == 0) gates.store(p.gates, b.l.begin, b.l.h);
            return 0.0f;
        }
        float *to = b.warp == V_WARP ? b.z.v : b.warp == K_WARP ? b.z.k : b.z.q;
        if (convolves) {
            const qrn_tile t = tile_of(b);
            const gdn_normed after(p, c);
            f.apply(x, to + 4 * b.lane, 0, 1, after);
            if (writes) {
                float *out = (float *)p.conv.out + t.begin * p.conv.out_stride[1] + c;
                *(float4 *)out = *(const float4 *)(to + 4 * b.lane);
                ring_of(b, t).store(0, x[0]);
            }
        }
        __syncwarp();
        return b.warp == V_WARP ? b.z.v[b.lane] : 0.0f;
    }

    __device__ float gate(const few_block &b) const
    {
        return b.z.gate;
    }
    __device__ float beta(const few_block &b) const
    {
        return b.z.beta;
    }
};

/* A sequence of any number of tokens; all threads of one block. */
static __device__ __noinline__ void others(const qrn_gdn_token_params &p, char *shared)
{
    const qrn_gdn_inputs_params &in = p.inputs;
    const int s = (int)blockIdx.y, n_heads = (int)p.chunk.x.heads.n_v;
    qrn_tile t = {s, 0, 0, 0, 0, 0, true};
    qrn_sequence(in.conv.sequences, s, &t.begin, &t.end);
    t.n = t.end - t.begin;
    for (int64_t c = 4 * threadIdx.x; c < in.conv.n_channels; c += 4 * THREADS) {
        filter<of_f32> f;
        f.load_weights(in.conv, c);
        const rings<of_f32> memory(in.conv, t, c, in.conv.history[s * in.conv.history_stride],
                                   in.conv.position[s]);
        convolve<of_f32>(in.conv, t, c, f, memory, gdn_normed(in, c));
    }
    for (int i = (int)threadIdx.x; i < (int)t.n * n_heads; i += THREADS)
        gdn_gates_of(in.gates, t.begin + i / n_heads, i % n_heads)
            .store(in.gates, t.begin + i / n_heads, i % n_heads);
    for (int i = 0; i < n_heads * (D / FALLBACK); i++) {
        __syncthreads();
        few_other(p.chunk, shared, s, i / (D / FALLBACK), i % (D / FALLBACK));
    }
}

QRN_DEVICE_FUNCTION(qrn_gdn_token, 128, 3, qrn_gdn_token_params)
{
    QRN_DYNAMIC_SHARED(char, shared);
    few_joined in(p.inputs);
    few_block x(p.chunk, *(few_shared *)shared);
    x.find_places();
    if (x.l.kind() == ONE_TOKEN) x.token(in);
    if (x.l.kind() == OTHER && blockIdx.x == 0) others(p, shared); /* all threads say the same */
}
