/* SPDX-License-Identifier: MIT
 * A joint: silu_mul of the chosen experts and of the shared one, their products with the weights behind, and
 * moe_combine; one token.
 *
 * A block has 32 elements of the result: the rows of weights of all experts that make them, which fit into shared
 * memory and are all asked for as soon as the experts are known.  Meanwhile twelve warps make all rows of x, as
 * every block does; block b stores every gridDim-th piece of them.  Then a warp has a panel at a time, and a slot's
 * panels are added by one warp, k ascending. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_MOE_DOWN_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_MOE_DOWN_CUH

#include "backends/cuda/device/matmul_stream.cuh"
#include "backends/cuda/moe_joints_cuda.h"

struct moe_down_shared {
    qrn_barrier full[QRN_MOE_SLOTS + 1]; /* of each slot's panels */
    qrn_q8_act own[QRN_STREAM_WARPS];
    float results[QRN_MOE_SLOTS + 1][QRN_PANEL_ROWS]; /* of slots */
};

/* Slots are those of the experts, then the shared expert's. */
template <int dtype> struct moe_down_block {
    const qrn_moe_down_params &p;
    moe_down_shared &s;
    const int n_experts, n_slots, n_panels, group; /* n_panels: of all slots */
    uint8_t *const panels, *const x;               /* x: QRN_STREAM_X bytes a panel */
    float *const sums, *const d;                   /* of each panel: QRN_PANEL_ROWS; one */

    __device__ __forceinline__ moe_down_block(const qrn_moe_down_params &params, moe_down_shared &shared, char *memory)
        : p(params), s(shared), n_experts(params.experts.n_slots),
          n_slots(params.experts.n_slots + params.shared.n_slots),
          n_panels(params.experts.n_slots * params.experts.n_panels + params.shared.n_slots * params.shared.n_panels),
          group((int)blockIdx.x), panels((uint8_t *)memory), x(panels + n_panels * (int)params.w.panel_bytes),
          sums((float *)(x + n_panels * QRN_STREAM_X)), d(sums + n_panels * QRN_PANEL_ROWS)
    {
    }

    __device__ __forceinline__ const qrn_moe_down_part &part_of(int slot) const
    {
        return slot < n_experts ? p.experts : p.shared;
    }
    /* The first panel of a slot among all, and the slot of a panel. */
    __device__ __forceinline__ int first_of(int slot) const { return slot * p.experts.n_panels; }
    __device__ __forceinline__ int slot_of(int panel) const
    {
        return min((int)((unsigned)panel / (unsigned)p.experts.n_panels), n_experts);
    }
    __device__ __forceinline__ int id_of(int slot) const { return ((const int32_t *)p.ids)[slot]; }
    __device__ __forceinline__ bool is_none(int slot) const
    {
        return slot < n_experts && (uint64_t)id_of(slot) >= (uint64_t)p.n_experts;
    }

    /* A lane's slot: its panels of this group. */
    __device__ __forceinline__ void copy(int slot) const
    {
        const qrn_moe_down_part &part = part_of(slot);
        const int panel_bytes = (int)p.w.panel_bytes, n_bytes = part.n_panels * panel_bytes;
        const uint8_t *from = (const uint8_t *)(uintptr_t)part.packed + group * part.group_bytes;
        if (slot < n_experts && !is_none(slot)) from += id_of(slot) * p.w.matrix_bytes;
        qrn_barrier_arrive_expecting(&s.full[slot], n_bytes);
        qrn_bulk_copy_hinted(panels + first_of(slot) * panel_bytes, from, n_bytes, &s.full[slot], qrn_read_once());
    }
    __device__ __forceinline__ void copies() const
    {
        const int slot = qrn_lane();
        if (slot == 0 && n_slots > n_experts) copy(n_experts); /* whose place is known */
        qrn_grid_waits();
        if (slot < n_experts) copy(slot);
    }

    /* x of a warp's panels, AT_ONCE of them on their way. */
    __device__ __forceinline__ void make_x() const
    {
        enum { AT_ONCE = 3 };
        const int lane = qrn_lane();
        qrn_q8_act *own = s.own + qrn_warp();
#pragma unroll 1
        for (int first = qrn_warp(); first < n_panels; first += AT_ONCE * QRN_STREAM_WARPS) {
            float4 gate[AT_ONCE], up[AT_ONCE];
#pragma unroll
            for (int j = 0; j < AT_ONCE; j++) {
                const int panel = min(first + j * QRN_STREAM_WARPS, n_panels - 1), slot = slot_of(panel);
                const qrn_moe_down_part &part = part_of(slot);
                const int i = slot < n_experts ? slot : 0, at = panel - first_of(slot);
                gate[j] = ((const float4 *)(uintptr_t)(part.gate + (uint64_t)(i * part.gate_row)))[32 * at + lane];
                up[j] = ((const float4 *)(uintptr_t)(part.up + (uint64_t)(i * part.up_row)))[32 * at + lane];
            }
#pragma unroll
            for (int j = 0; j < AT_ONCE; j++) {
                const int panel = first + j * QRN_STREAM_WARPS;
                if (panel >= n_panels) break;
                const float v[4] = {qrn_silu(gate[j].x) * up[j].x, qrn_silu(gate[j].y) * up[j].y,
                                    qrn_silu(gate[j].z) * up[j].z, qrn_silu(gate[j].w) * up[j].w};
                __syncwarp();
                qrn_store_q8_act(own, v);
                __syncwarp();
                uint8_t *to = x + panel * QRN_STREAM_X;
                ((uint32_t *)to)[lane] = ((const uint32_t *)own->q)[lane];
                if (lane < 4) qrn_stream_put_sum<dtype>(to, lane, ((const uint32_t *)own->sum)[lane]);
                if (lane == 0) d[panel] = own->d;
                if (panel % (int)gridDim.x == (int)blockIdx.x) store_x(panel, *own);
            }
        }
    }
    __device__ __forceinline__ void store_x(int panel, const qrn_q8_act &block) const
    {
        enum { WORDS = sizeof(qrn_q8_act) / 4 };
        const int slot = slot_of(panel), i = slot < n_experts ? slot : 0;
        const qrn_moe_down_part &part = part_of(slot);
        uint32_t *to = (uint32_t *)((qrn_q8_act *)(uintptr_t)(part.out + (uint64_t)(i * part.out_row)) + panel -
                                    first_of(slot));
        for (int w = qrn_lane(); w < WORDS; w += 32) to[w] = ((const uint32_t *)&block)[w];
    }

    __device__ __forceinline__ void multiply() const
    {
        const qrn_panel_form form = qrn_panel_form_of(dtype, p.w);
#pragma unroll 1
        for (int panel = qrn_warp(); panel < n_panels; panel += QRN_STREAM_WARPS) {
            qrn_barrier_wait(&s.full[slot_of(panel)], 0);
            sums[panel * QRN_PANEL_ROWS + qrn_lane()] = qrn_stream_panel_of_one<dtype>(
                form, p.flip, panels + panel * (int)p.w.panel_bytes, x + panel * QRN_STREAM_X);
        }
    }

    /* Results of slots. */
    __device__ __forceinline__ void add() const
    {
        const int lane = qrn_lane();
        const int64_t n = (int64_t)group * QRN_PANEL_ROWS + lane;
        for (int slot = qrn_warp(); slot < n_slots; slot += QRN_STREAM_WARPS) {
            const int first = first_of(slot), end = first + part_of(slot).n_panels;
            float acc = 0.0f;
            for (int panel = first; panel < end; panel++)
                acc = fmaf(sums[panel * QRN_PANEL_ROWS + lane], d[panel], acc);
            if (is_none(slot)) acc = __uint_as_float(0x7fc00000u);
            s.results[slot][lane] = acc;
            if (n >= p.combine.d) continue;
            float *to = slot < n_experts ? (float *)p.combine.experts + slot * p.combine.experts_rank
                                         : (float *)p.combine.shared;
            to[n] = acc;
        }
    }

    __device__ __forceinline__ void combine(float weight, float gate) const
    {
        const int64_t n = (int64_t)group * QRN_PANEL_ROWS + qrn_lane();
        float y = 0.0f;
        for (int k = 0; k < n_experts; k++)
            y = fmaf(__shfl_sync(QRN_ALL_OF_WARP, weight, k), s.results[k][qrn_lane()], y);
        if (n_slots > n_experts)
            y = fmaf(p.combine.gate ? qrn_sigmoid(gate) : 1.0f, s.results[n_experts][qrn_lane()], y);
        if (n < p.combine.d) p.combine.out[n] = y;
    }

    __device__ __forceinline__ void work() const
    {
        float weight = 0.0f, gate = 0.0f;
        if (qrn_warp() == QRN_STREAM_WARPS) {
            copies();
            return;
        }
        qrn_grid_waits();
        if (qrn_warp() == 0 && qrn_lane() < n_experts) weight = p.combine.weights[qrn_lane()];
        if (qrn_warp() == 0 && p.combine.gate) gate = p.combine.gate[0];
        make_x();
        qrn_sync_some(1, 32 * QRN_STREAM_WARPS);
        multiply();
        qrn_sync_some(1, 32 * QRN_STREAM_WARPS);
        add();
        qrn_sync_some(1, 32 * QRN_STREAM_WARPS);
        if (qrn_warp() == 0) combine(weight, gate);
    }
};

template <int dtype> static __device__ __forceinline__ void moe_down(const qrn_moe_down_params &p)
{
    QRN_DYNAMIC_SHARED(char, memory);
    __shared__ moe_down_shared shared;
    const int n_slots = p.experts.n_slots + p.shared.n_slots;
    if (threadIdx.x == 32 * QRN_STREAM_WARPS) {
        for (int i = 0; i < n_slots; i++) qrn_barrier_init(&shared.full[i], 1);
        qrn_barriers_are_ready();
    }
    __syncthreads();
    moe_down_block<dtype>(p, shared, memory).work();
}

#define QRN_MOE_DOWN(NAME)                                                                          \
    QRN_DEVICE_FUNCTION_EARLY(qrn_moe_down_##NAME, QRN_MOE_DOWN_THREADS, 1, qrn_moe_down_params)   \
    {                                                                                              \
        moe_down<QRN_##NAME>(p);                                                                   \
    }

#endif
