/* SPDX-License-Identifier: MIT
 * attention_classify_tiles in portable C. */
#include "backends/cpu/cpu.h"
#include "base/half.h"
#include "ops/attention_row.h"

static float mask_value(const struct qrn_tensor *mask, int64_t i, int64_t j)
{
    const int64_t at = i * mask->stride[0] + j;
    if (mask->dtype == QRN_F32) return ((const float *)mask->data)[at];
    const uint16_t half = ((const uint16_t *)mask->data)[at];
    return mask->dtype == QRN_F16 ? qrn_f16_to_float(half) : qrn_bf16_to_float(half);
}

/* Of row i, keys first .. last - 1: how many are attended to, and how many of those with mask 0. */
static void count(const struct qrn_attention_classify_tiles_args *a, int64_t i, int64_t first,
                  int64_t last, int64_t *n_attended, int64_t *n_zero)
{
    int64_t begin, end;
    qrn_attention_range(a->q_offset + i, a->causal, a->window, a->n_kv, &begin, &end);
    if (begin < first) begin = first;
    if (end > last) end = last;
    if (!a->mask.n_dims && end > begin) {
        *n_attended += end - begin;
        *n_zero += end - begin;
    }
    for (int64_t j = begin; j < end && a->mask.n_dims; j++) {
        const float value = mask_value(&a->mask, i, j);
        *n_attended += !(value <= ATTENTION_MASKED);
        *n_zero += value == 0.0f;
    }
}

static void run(void *lane, const void *args)
{
    const struct qrn_attention_classify_tiles_args *a = args;
    const int64_t n_q = a->classes.shape[0], n_k = a->classes.shape[1];
    int64_t first, last;
    qrn_cpu_share(lane, n_q * n_k, 1, &first, &last);
    for (int64_t t = first; t < last; t++) {
        const int64_t q = t / n_k * a->tile_q, k = t % n_k * a->tile_k;
        const int64_t q_end = a->n_tokens - q < a->tile_q ? a->n_tokens : q + a->tile_q;
        const int64_t k_end = a->n_kv - k < a->tile_k ? a->n_kv : k + a->tile_k;
        const bool cut = q_end - q < a->tile_q || k_end - k < a->tile_k;
        int64_t n_attended = 0, n_zero = 0;
        for (int64_t i = q; i < q_end; i++) count(a, i, k, k_end, &n_attended, &n_zero);
        uint8_t *class = (uint8_t *)a->classes.data + t / n_k * a->classes.stride[0] + t % n_k;
        *class = n_attended == 0 ? 0 : !cut && n_zero == (q_end - q) * (k_end - k) ? 2 : 1;
    }
}

const struct qrn_kernel qrn_cpu_attention_classify_tiles_generic = {
    .op = QRN_OP_attention_classify_tiles,
    .name = "cpu.attention_classify_tiles.generic",
    .run = run,
};
