/* SPDX-License-Identifier: MIT
 * kv_append in portable C. */
#include <string.h>

#include "backends/cpu/cpu.h"
#include "base/half.h"

static void store_row(const float *x, const struct qrn_tensor *cache, int64_t head, int64_t slot)
{
    const int64_t at = head * cache->stride[0] + slot * cache->stride[1], n = cache->shape[2];
    uint16_t *half = (uint16_t *)cache->data + at;
    if (cache->dtype == QRN_F32)
        memcpy((float *)cache->data + at, x, (size_t)n * sizeof *x);
    else if (cache->dtype == QRN_F16)
        for (int64_t i = 0; i < n; i++) half[i] = qrn_float_to_f16(x[i]);
    else
        for (int64_t i = 0; i < n; i++) half[i] = qrn_float_to_bf16(x[i]);
}

static void run(void *lane, const void *args)
{
    const struct qrn_kv_append_args *a = args;
    const int64_t capacity = a->cache_k.shape[1], n_tokens = a->k.shape[0], n_heads = a->k.shape[1];
    const int64_t skipped = n_tokens > capacity ? n_tokens - capacity : 0;
    const int64_t position = *(const int32_t *)a->position.data;
    int64_t first, last;
    qrn_cpu_share(lane, (n_tokens - skipped) * n_heads, 1, &first, &last);
    for (int64_t r = first; r < last; r++) {
        const int64_t t = skipped + r / n_heads, h = r % n_heads, slot = (position + t) % capacity;
        store_row((const float *)a->k.data + t * a->k.stride[0] + h * a->k.stride[1], &a->cache_k,
                  h, slot);
        store_row((const float *)a->v.data + t * a->v.stride[0] + h * a->v.stride[1], &a->cache_v,
                  h, slot);
    }
}

const struct qrn_kernel qrn_cpu_kv_append_generic = {
    .op = QRN_OP_kv_append,
    .name = "cpu.kv_append.generic",
    .run = run,
};
