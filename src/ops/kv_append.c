/* SPDX-License-Identifier: MIT
 * kv_append: checks and reference. */
#include "core/op.h"

#include <inttypes.h>

static enum qrn_status check_pair(const char *x_name, const struct qrn_tensor *x,
                                  const char *cache_name, const struct qrn_tensor *cache,
                                  const struct qrn_kv_append_args *a, struct qrn_error *err)
{
    const char *op = "kv_append";
    QRN_TRY(qrn_check_dtype(op, x_name, x, err, 1, QRN_F32));
    QRN_TRY(qrn_check_shape(op, x_name, x, err, 3, a->k.shape[0], a->k.shape[1], (int64_t)-1));
    QRN_TRY(qrn_check_dtype(op, cache_name, cache, err, 3, QRN_F32, QRN_F16, QRN_BF16));
    return qrn_check_shape(op, cache_name, cache, err, 3, x->shape[1], a->cache_k.shape[1],
                           x->shape[2]);
}

static enum qrn_status check(const void *args, struct qrn_error *err)
{
    const struct qrn_kv_append_args *a = args;
    QRN_TRY(check_pair("k", &a->k, "cache_k", &a->cache_k, a, err));
    QRN_TRY(check_pair("v", &a->v, "cache_v", &a->cache_v, a, err));
    QRN_TRY(qrn_check_dtype("kv_append", "position", &a->position, err, 1, QRN_I32));
    QRN_TRY(qrn_check_shape("kv_append", "position", &a->position, err, 1, (int64_t)1));
    if (a->cache_k.shape[1] == 0)
        return qrn_fail(err, QRN_ERR_SHAPE, "kv_append: cache_k.shape[1] is 0, wants 1 or more");
    return QRN_OK;
}

static enum qrn_status check_data(const void *args, struct qrn_error *err)
{
    const struct qrn_kv_append_args *a = args;
    const int64_t position = *(const int32_t *)a->position.data, n = a->k.shape[0],
                  capacity = a->cache_k.shape[1];
    if (position < 0)
        return qrn_fail(err, QRN_ERR_ARGUMENT,
                        "kv_append: position[0] is %" PRId64 ", wants 0 or more", position);
    if (!a->ring && n > capacity - position)
        return qrn_fail(err, QRN_ERR_LIMIT,
                        "kv_append: %" PRId64 " tokens from position %" PRId64
                        " on do not fit in a cache of %" PRId64,
                        n, position, capacity);
    return QRN_OK;
}

static void store(const struct qrn_kv_append_args *a, const struct qrn_tensor *x,
                  const struct qrn_tensor *cache)
{
    const int64_t position = (int64_t)qrn_ref_get(&a->position, 0, 0, 0, 0),
                  capacity = cache->shape[1];
    for (int64_t t = 0; t < x->shape[0]; t++) /* of a ring, later tokens replace earlier ones */
        for (int64_t h = 0; h < x->shape[1]; h++)
            for (int64_t d = 0; d < x->shape[2]; d++)
                qrn_ref_set(cache, h, (position + t) % capacity, d, 0, qrn_ref_get(x, t, h, d, 0));
}

static void reference(const void *args)
{
    const struct qrn_kv_append_args *a = args;
    store(a, &a->k, &a->cache_k);
    store(a, &a->v, &a->cache_v);
}

static void cost(const void *args, double *n_flops, double *n_bytes)
{
    const struct qrn_kv_append_args *a = args;
    *n_flops = 0;
    *n_bytes = (double)qrn_tensor_n_elements(&a->k) *
                   (4.0 + qrn_dtype_info(a->cache_k.dtype)->block_bytes) +
               (double)qrn_tensor_n_elements(&a->v) *
                   (4.0 + qrn_dtype_info(a->cache_v.dtype)->block_bytes);
}

static const struct qrn_operand operands[] = {
    QRN_OPERAND(kv_append, k, QRN_READS),
    QRN_OPERAND(kv_append, v, QRN_READS),
    QRN_OPERAND(kv_append, position, QRN_READS),
    QRN_OPERAND(kv_append, cache_k, QRN_READS | QRN_WRITES),
    QRN_OPERAND(kv_append, cache_v, QRN_READS | QRN_WRITES),
};

const struct qrn_op qrn_op_kv_append = {
    .name = "kv_append",
    .args_bytes = sizeof(struct qrn_kv_append_args),
    .operands = operands,
    .n_operands = sizeof operands / sizeof *operands,
    .check = check,
    .check_data = check_data,
    .reference = reference,
    .cost = cost,
};
