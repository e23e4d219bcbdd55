/* SPDX-License-Identifier: MIT
 * attention_paged: checks and reference. */
#include "core/op.h"

#include <inttypes.h>
#include <math.h>
#include "base/half.h"
#include "ops/attention_row.h"
#include "ops/kv_pages.h"

static struct kv_pages pages_of(const struct qrn_attention_paged_args *a)
{
    return (struct kv_pages){
        .op = "attention_paged",
        .seq_begin = &a->seq_begin,
        .position = &a->position,
        .pages = &a->pages,
        .n_tokens = a->q.shape[0],
        .n_kv_heads = a->n_kv_heads,
        .head_dim = a->q.shape[2],
        .page_offset = a->page_offset,
        .kv_type = a->kv_type,
    };
}

static enum qrn_status check(const void *args, struct qrn_error *err)
{
    const struct qrn_attention_paged_args *a = args;
    const char *op = "attention_paged";
    QRN_TRY(qrn_check_dtype(op, "q", &a->q, err, 1, QRN_F32));
    QRN_TRY(qrn_check_shape(op, "q", &a->q, err, 3, (int64_t)-1, (int64_t)-1, (int64_t)-1));
    QRN_TRY(qrn_check_dtype(op, "out", &a->out, err, 1, QRN_F32));
    QRN_TRY(qrn_check_same_shape(op, "out", &a->out, "q", &a->q, err));
    QRN_TRY(qrn_attention_check_heads(op, a->q.shape[1], a->n_kv_heads, err));
    QRN_TRY(qrn_attention_check_numbers(op, a->scale, a->softcap, a->window, err));
    QRN_TRY(qrn_attention_check_acts(op, a->acts, err));
    const struct kv_pages p = pages_of(a);
    return qrn_kv_pages_check(&p, err);
}

static enum qrn_status check_data(const void *args, struct qrn_error *err)
{
    const struct kv_pages p = pages_of(args);
    return qrn_kv_pages_check_data(&p, true, err);
}

struct row {
    const struct qrn_attention_paged_args *a;
    const struct kv_pages *pages;
    int64_t seq, token, head, kv_head;
};

static double element(const struct kv_pages *p, const char *head, int64_t i)
{
    if (p->kv_type == QRN_F32) return (double)((const float *)(const void *)head)[i];
    return (double)qrn_f16_to_float(((const uint16_t *)(const void *)head)[i]);
}

static double key(const void *user, int64_t j, int64_t d)
{
    const struct row *r = user;
    return element(r->pages, kv_page_head(r->pages, r->seq, j / 64, r->kv_head, false),
                   d * 64 + j % 64);
}

static double value(const void *user, int64_t j, int64_t d)
{
    const struct row *r = user;
    return element(r->pages, kv_page_head(r->pages, r->seq, j / 64, r->kv_head, true),
                   j % 64 * r->pages->head_dim + d);
}

static double query(const void *user, int64_t d)
{
    const struct row *r = user;
    return qrn_ref_get(&r->a->q, r->token, r->head, d, 0);
}

static void set_out(const void *user, int64_t d, double x)
{
    const struct row *r = user;
    qrn_ref_set(&r->a->out, r->token, r->head, d, 0, x);
}

static void reference(const void *args)
{
    const struct qrn_attention_paged_args *a = args;
    const struct kv_pages p = pages_of(a);
    const int32_t *begin = kv_pages_i32(&a->seq_begin), *position = kv_pages_i32(&a->position);
    const int64_t group = a->q.shape[1] / a->n_kv_heads;
    for (int64_t s = 0; s < kv_pages_n_seqs(&a->position); s++)
        for (int64_t t = begin[s]; t < begin[s + 1]; t++)
            for (int64_t h = 0; h < a->q.shape[1]; h++) {
                const int64_t at = position[s] + t - begin[s];
                const struct row r = {a, &p, s, t, h, h / group};
                const struct attention_row row = {
                    .user = &r,
                    .query = query,
                    .key = key,
                    .value = value,
                    .set_out = set_out,
                    .d_k = p.head_dim,
                    .d_v = p.head_dim,
                    .end = at + 1,
                    .begin = a->window && at + 1 > a->window ? at + 1 - a->window : 0,
                    .scale = (double)a->scale,
                    .softcap = (double)a->softcap,
                };
                qrn_attention_row(&row);
            }
}

static void cost(const void *args, double *n_flops, double *n_bytes)
{
    const struct qrn_attention_paged_args *a = args;
    const int32_t *begin = kv_pages_i32(&a->seq_begin), *position = kv_pages_i32(&a->position);
    const double width = (double)a->q.shape[1] * (double)a->q.shape[2];
    const double kv_width =
        2.0 * (double)a->n_kv_heads * (double)a->q.shape[2] * (a->kv_type == QRN_F16 ? 2.0 : 4.0);
    *n_flops = 0;
    *n_bytes = 8.0 * (double)a->q.shape[0] * width;
    for (int64_t s = 0; s < kv_pages_n_seqs(&a->position); s++) {
        const double n_new = (double)(begin[s + 1] - begin[s]), before = (double)position[s];
        double n_keys = n_new * before + n_new * (n_new + 1.0) / 2.0, n_read = before + n_new;
        if (a->window) {
            n_keys = fmin(n_keys, n_new * (double)a->window);
            n_read = fmin(n_read, n_new + (double)a->window);
        }
        *n_flops += 4.0 * n_keys * width;
        *n_bytes += n_new > 0 ? n_read * kv_width : 0;
    }
}

static const struct qrn_operand operands[] = {
    QRN_OPERAND(attention_paged, q, QRN_READS),
    QRN_OPERAND(attention_paged, seq_begin, QRN_READS),
    QRN_OPERAND(attention_paged, position, QRN_READS),
    QRN_OPERAND(attention_paged, pages, QRN_READS),
    QRN_OPERAND(attention_paged, out, QRN_WRITES),
};

const struct qrn_op qrn_op_attention_paged = {
    .name = "attention_paged",
    .args_bytes = sizeof(struct qrn_attention_paged_args),
    .operands = operands,
    .n_operands = sizeof operands / sizeof *operands,
    .check = check,
    .check_data = check_data,
    .reference = reference,
    .cost = cost,
    .cost_changes = true,
};
