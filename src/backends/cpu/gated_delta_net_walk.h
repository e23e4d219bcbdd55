/* SPDX-License-Identifier: MIT
 * The walk that the variants of gated_delta_net share: rows of the state are independent, so an
 * item is a few rows of one head of one sequence, through all its tokens. */
#ifndef QUERN_BACKENDS_CPU_GATED_DELTA_NET_WALK_H
#define QUERN_BACKENDS_CPU_GATED_DELTA_NET_WALK_H

#include "backends/cpu/cpu.h"
#include "core/gdn_layout.h"

enum { GDN_ROWS = 4 };

/* n_rows rows of S, in place; element t of g, beta at t * stride, of v and out from this row on. */
struct gdn_recurrence {
    float *state; /* rows state_stride apart */
    const float *q, *k, *v, *g, *beta;
    float *out;
    int64_t state_stride, q_stride, k_stride, v_stride, g_stride, beta_stride, out_stride;
    int64_t d_k, n_tokens;
    int n_rows;
    float scale, sign; /* decay = exp(sign * g) */
};

static inline void gated_delta_net_rows(const struct qrn_gated_delta_net_args *a, int64_t s,
                                        int64_t h, int64_t j, int n_rows,
                                        void (*rows)(const struct gdn_recurrence *))
{
    const struct qrn_tensor *in = &a->state_in, *out = &a->state_out;
    const int64_t kh = gdn_key_head(a->head_map, h, a->q.shape[1], a->v.shape[1]);
    const int64_t token = gdn_seq_begin(&a->seq_begin, a->q.shape[0], s);
    const int64_t end = gdn_seq_begin(&a->seq_begin, a->q.shape[0], s + 1);
    const float *from =
        (const float *)in->data + s * in->stride[0] + h * in->stride[1] + j * in->stride[2];
    float *to = (float *)out->data + s * out->stride[0] + h * out->stride[1] + j * out->stride[2];
    for (int r = 0; r < n_rows && from != to; r++)
        for (int64_t i = 0; i < a->q.shape[2]; i++)
            to[r * out->stride[2] + i] = from[r * in->stride[2] + i];
    if (token == end) return;
#define AT(t, head, column) \
    ((float *)(t)->data + token * (t)->stride[0] + (head) * (t)->stride[1] + (column))
    const struct gdn_recurrence item = {
        .state = to, .state_stride = out->stride[2], .d_k = a->q.shape[2], .n_tokens = end - token,
        .q = AT(&a->q, kh, 0), .k = AT(&a->k, kh, 0), .v = AT(&a->v, h, j), .g = AT(&a->g, h, 0),
        .beta = AT(&a->beta, h, 0), .out = AT(&a->out, h, j), .q_stride = a->q.stride[0],
        .k_stride = a->k.stride[0], .v_stride = a->v.stride[0], .g_stride = a->g.stride[0],
        .beta_stride = a->beta.stride[0], .out_stride = a->out.stride[0], .n_rows = n_rows,
        .scale = a->scale, .sign = a->gate_sign == QRN_GATE_POSITIVE ? -1.0f : 1.0f};
#undef AT
    rows(&item);
}

static inline void gated_delta_net_walk(const struct qrn_cpu_lane *lane,
                                        const struct qrn_gated_delta_net_args *a,
                                        void (*rows)(const struct gdn_recurrence *))
{
    const int64_t n_v_heads = a->v.shape[1], d_v = a->v.shape[2];
    const int64_t n_items = (d_v + GDN_ROWS - 1) / GDN_ROWS;
    int64_t begin, end;
    qrn_cpu_share(lane, a->state_in.shape[0] * n_v_heads * n_items, 1, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        const int64_t head = i / n_items, j = i % n_items * GDN_ROWS;
        gated_delta_net_rows(a, head / n_v_heads, head % n_v_heads, j,
                             (int)(d_v - j < GDN_ROWS ? d_v - j : GDN_ROWS), rows);
    }
}

#endif
