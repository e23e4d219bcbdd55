/* SPDX-License-Identifier: MIT
 * attention: checks and reference. */
#include "core/op.h"

#include <inttypes.h>
#include "ops/attention_row.h"

/* The shape [(n0,) n1, n2, n3]: n0 where q has a batch dimension. */
static enum qrn_status check_shape(const struct qrn_attention_args *a, const char *name,
                                   const struct qrn_tensor *t, struct qrn_error *err, int64_t n0,
                                   int64_t n1, int64_t n2, int64_t n3)
{
    if (a->q.n_dims == 4) return qrn_check_shape("attention", name, t, err, 4, n0, n1, n2, n3);
    return qrn_check_shape("attention", name, t, err, 3, n1, n2, n3);
}

static enum qrn_status check_mask(const struct qrn_attention_args *a, struct qrn_error *err)
{
    const struct qrn_tensor *m = &a->mask, *q = &a->q;
    const int b = q->n_dims - 3;
    const int64_t n_tokens = q->shape[b], n_heads = q->shape[b + 1], n_kv = a->k.shape[b];
    QRN_TRY(qrn_check_dtype("attention", "mask", m, err, 3, QRN_F32, QRN_F16, QRN_BF16));
    if (m->n_dims == 2) return qrn_check_shape("attention", "mask", m, err, 2, n_tokens, n_kv);
    if (m->n_dims == 3)
        return qrn_check_shape("attention", "mask", m, err, 3, n_heads, n_tokens, n_kv);
    if (b == 0 || m->n_dims != 4)
        return qrn_fail(err, QRN_ERR_SHAPE, "attention: mask has %d dimensions, wants 2 to %d",
                        m->n_dims, q->n_dims);
    return qrn_check_shape("attention", "mask", m, err, 4, q->shape[0], n_heads, n_tokens, n_kv);
}

static enum qrn_status check_classes(const struct qrn_attention_args *a, struct qrn_error *err)
{
    const int b = a->q.n_dims - 3;
    if (a->tile_q != ATTENTION_TILE_Q || a->tile_k != ATTENTION_TILE_K)
        return qrn_fail(err, QRN_ERR_ARGUMENT,
                        "attention: classes are of tiles [%" PRId64 ", %" PRId64
                        "], the kernel wants [%d, %d]",
                        a->tile_q, a->tile_k, ATTENTION_TILE_Q, ATTENTION_TILE_K);
    if (a->mask.n_dims > 2)
        return qrn_fail(err, QRN_ERR_SHAPE,
                        "attention: mask has %d dimensions, wants 2 beside classes",
                        a->mask.n_dims);
    QRN_TRY(qrn_check_dtype("attention", "classes", &a->classes, err, 1, QRN_U8));
    return qrn_check_shape("attention", "classes", &a->classes, err, 2,
                           attention_n_tiles(a->q.shape[b], a->tile_q),
                           attention_n_tiles(a->k.shape[b], a->tile_k));
}

/* All but out and classes. */
static enum qrn_status check_inputs(const struct qrn_attention_args *a, struct qrn_error *err)
{
    const char *op = "attention";
    const int b = a->q.n_dims - 3;
    QRN_TRY(qrn_check_dtype(op, "q", &a->q, err, 1, QRN_F32));
    if (b != 0 && b != 1)
        return qrn_fail(err, QRN_ERR_SHAPE, "%s: q has %d dimensions, wants 3 or 4", op,
                        a->q.n_dims);
    QRN_TRY(qrn_check_dtype(op, "k", &a->k, err, 3, QRN_F32, QRN_F16, QRN_BF16));
    QRN_TRY(qrn_check_dtype(op, "v", &a->v, err, 1, a->k.dtype));
    QRN_TRY(check_shape(a, "k", &a->k, err, a->q.shape[0], -1, -1, a->q.shape[b + 2]));
    QRN_TRY(check_shape(a, "v", &a->v, err, a->q.shape[0], a->k.shape[b], a->k.shape[b + 1], -1));
    QRN_TRY(qrn_attention_check_heads(op, a->q.shape[b + 1], a->k.shape[b + 1], err));
    QRN_TRY(qrn_attention_check_numbers(op, a->scale, a->softcap, a->window, err));
    QRN_TRY(qrn_attention_check_acts(op, a->acts, err));
    QRN_TRY(qrn_attention_check_offset(op, a->q_offset, err));
    return qrn_tensor_present(&a->mask) ? check_mask(a, err) : QRN_OK;
}

static enum qrn_status check(const void *args, struct qrn_error *err)
{
    const struct qrn_attention_args *a = args;
    QRN_TRY(check_inputs(a, err));
    const int b = a->q.n_dims - 3;
    QRN_TRY(qrn_check_dtype("attention", "out", &a->out, err, 1, QRN_F32));
    QRN_TRY(check_shape(a, "out", &a->out, err, a->q.shape[0], a->q.shape[b], a->q.shape[b + 1],
                        a->v.shape[b + 2]));
    return qrn_tensor_present(&a->classes) ? check_classes(a, err) : QRN_OK;
}

enum qrn_status qrn_attention_tile(struct qrn_device *dev, const struct qrn_attention_args *args,
                                   int64_t *tile_q, int64_t *tile_k, struct qrn_error *err)
{
    (void)dev; /* every kernel walks the same grid, and check refuses another */
    static const char *const names[] = {"q", "k", "v", "mask"};
    const struct qrn_tensor *const all[] = {&args->q, &args->k, &args->v, &args->mask};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!qrn_dtype_info(all[i]->dtype))
            return qrn_fail(err, QRN_ERR_DTYPE, "attention: %s.dtype is %d, which is no type",
                            names[i], (int)all[i]->dtype);
    QRN_TRY(check_inputs(args, err));
    *tile_q = ATTENTION_TILE_Q;
    *tile_k = ATTENTION_TILE_K;
    return QRN_OK;
}

struct row {
    const struct qrn_attention_args *a;
    struct qrn_tensor q, k, v, out;
    int64_t batch, token, head, kv_head;
};

static double query(const void *user, int64_t d)
{
    const struct row *r = user;
    return qrn_ref_get(&r->q, r->batch, r->token, r->head, d);
}

static double key(const void *user, int64_t j, int64_t d)
{
    const struct row *r = user;
    return qrn_ref_get(&r->k, r->batch, j, r->kv_head, d);
}

static double value(const void *user, int64_t j, int64_t d)
{
    const struct row *r = user;
    return qrn_ref_get(&r->v, r->batch, j, r->kv_head, d);
}

static double mask(const void *user, int64_t j)
{
    const struct row *r = user;
    const struct qrn_tensor *m = &r->a->mask;
    if (m->n_dims == 2) return qrn_ref_get(m, r->token, j, 0, 0);
    if (m->n_dims == 3) return qrn_ref_get(m, r->head, r->token, j, 0);
    return qrn_ref_get(m, r->batch, r->head, r->token, j);
}

static void set_out(const void *user, int64_t d, double x)
{
    const struct row *r = user;
    qrn_ref_set(&r->out, r->batch, r->token, r->head, d, x);
}

static void reference(const void *args)
{
    const struct qrn_attention_args *a = args;
    struct row r = {.a = a,
                    .q = attention_batched(a->q),
                    .k = attention_batched(a->k),
                    .v = attention_batched(a->v),
                    .out = attention_batched(a->out)};
    struct attention_row row = {
        .user = &r,
        .query = query,
        .key = key,
        .value = value,
        .mask = a->mask.n_dims ? mask : NULL,
        .set_out = set_out,
        .d_k = r.k.shape[3],
        .d_v = r.v.shape[3],
        .scale = (double)a->scale,
        .softcap = (double)a->softcap,
    };
    for (r.batch = 0; r.batch < r.q.shape[0]; r.batch++)
        for (r.head = 0; r.head < r.q.shape[2]; r.head++)
            for (r.token = 0; r.token < r.q.shape[1]; r.token++) {
                r.kv_head = r.head / (r.q.shape[2] / r.k.shape[2]);
                qrn_attention_range(a->q_offset + r.token, a->causal, a->window, r.k.shape[1],
                                    &row.begin, &row.end);
                qrn_attention_row(&row);
            }
}

static void cost(const void *args, double *n_flops, double *n_bytes)
{
    const struct qrn_attention_args *a = args;
    const struct qrn_tensor q = attention_batched(a->q), k = attention_batched(a->k);
    const double kv_bytes = qrn_dtype_info(a->k.dtype)->block_bytes;
    double n_pairs = 0;
    for (int64_t i = 0; i < q.shape[1]; i++) {
        int64_t begin, end;
        qrn_attention_range(a->q_offset + i, a->causal, a->window, k.shape[1], &begin, &end);
        n_pairs += (double)(end - begin);
    }
    *n_flops = 4.0 * n_pairs * (double)q.shape[0] * (double)q.shape[2] * (double)q.shape[3];
    *n_bytes = 4.0 * (double)(qrn_tensor_n_elements(&a->q) + qrn_tensor_n_elements(&a->out)) +
               kv_bytes * (double)(qrn_tensor_n_elements(&a->k) + qrn_tensor_n_elements(&a->v));
    if (a->mask.n_dims)
        *n_bytes +=
            (double)qrn_tensor_n_elements(&a->mask) * qrn_dtype_info(a->mask.dtype)->block_bytes;
}

static const struct qrn_operand operands[] = {
    QRN_OPERAND(attention, q, QRN_READS),
    QRN_OPERAND(attention, k, QRN_READS),
    QRN_OPERAND(attention, v, QRN_READS),
    QRN_OPERAND(attention, mask, QRN_READS | QRN_OPTIONAL),
    QRN_OPERAND(attention, classes, QRN_READS | QRN_OPTIONAL),
    QRN_OPERAND(attention, out, QRN_WRITES),
};

const struct qrn_op qrn_op_attention = {
    .name = "attention",
    .args_bytes = sizeof(struct qrn_attention_args),
    .operands = operands,
    .n_operands = sizeof operands / sizeof *operands,
    .check = check,
    .reference = reference,
    .cost = cost,
};
