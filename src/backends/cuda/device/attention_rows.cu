/* SPDX-License-Identifier: MIT
 * A joint: rms_norm and rope of queries and of keys, and kv_append_paged, of few tokens.
 *
 * Bound by latency: a warp has a row of one head, which stays in registers from the norm to the page,
 * and passes through shared memory once, where the other half of a pair is another lane's.  Cosines and
 * sines, in float64, and pages are worked out before the launch's turn where that can be. */
#include "backends/cuda/device/attention_row.cuh"

enum { WARPS = QRN_ATTENTION_ROWS_WARPS };

/* A warp takes a head of token blockIdx.x: of queries, then of keys, then of values. */
template <int N> static __device__ __forceinline__ void rows(const qrn_attention_rows_params &p)
{
    __shared__ float cosine[QRN_ROPE_MAX_PAIRS], sine[QRN_ROPE_MAX_PAIRS];
    __shared__ __align__(16) float shared[WARPS][N * QRN_PIECE];
    const int n_kv = (int)p.append.paged.n_kv_heads,
              nth = (int)blockIdx.y * WARPS + qrn_warp() - p.n_heads;
    const bool is_query = nth < 0, is_key = !is_query && nth < n_kv,
               is_value = nth >= n_kv && nth < 2 * n_kv;
    const qrn_attention_rows_side &side = is_query ? p.q : p.k;
    const int head = is_query ? nth + p.n_heads : is_key ? nth : nth - n_kv;
    attention_row<N> row(p, blockIdx.x);
    norm_part<1, N> weight;
    float *at = side.x + row.t * side.token + head * side.head;
    int slot = 0;
    if (!p.early) qrn_grid_waits();
    if ((is_query || is_key) && side.weight && 32 * qrn_lane() < row.d) qrn_prefetch(side.weight + 32 * qrn_lane());
    for (int i = (int)threadIdx.x; i < p.rope.n_pairs; i += 32 * WARPS)
        rope_turn(p.rope, row.t, i, &cosine[i], &sine[i]);
    char *page = is_query ? nullptr : qrn_paged_page_of(p.append.paged, row.t, &slot);
    qrn_grid_waits();
    if (is_query || is_key) {
        row.x.load(at, row.d);
        if (side.weight) weight.load(side.weight, row.d);
        row.norm(side, weight);
        row.x.store(shared[qrn_warp()], N * QRN_PIECE);
    }
    if (is_value) row.load_values(head);
    __syncthreads();
    if (is_query || is_key) {
        row.turn(shared[qrn_warp()], cosine, sine);
        row.x.store(at, row.d);
    }
    if (is_key || is_value) row.append(head, is_value, page, slot);
}

QRN_DEVICE_FUNCTION_EARLY(qrn_attention_rows1, 128, 4, qrn_attention_rows_params)
{
    rows<1>(p);
}

QRN_DEVICE_FUNCTION_EARLY(qrn_attention_rows2, 128, 4, qrn_attention_rows_params)
{
    rows<2>(p);
}

QRN_DEVICE_FUNCTION_EARLY(qrn_attention_rows4, 128, 3, qrn_attention_rows_params)
{
    rows<4>(p);
}
