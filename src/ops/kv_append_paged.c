/* SPDX-License-Identifier: MIT
 * kv_append_paged: checks and reference. */
#include "core/op.h"

#include "ops/kv_pages.h"

static struct kv_pages pages_of(const struct qrn_kv_append_paged_args *a)
{
    return (struct kv_pages){
        .op = "kv_append_paged",
        .seq_begin = &a->seq_begin,
        .position = &a->position,
        .pages = &a->pages,
        .n_tokens = a->k.shape[0],
        .n_kv_heads = a->k.shape[1],
        .head_dim = a->k.shape[2],
        .page_offset = a->page_offset,
        .kv_type = a->kv_type,
    };
}

static enum qrn_status check(const void *args, struct qrn_error *err)
{
    const struct qrn_kv_append_paged_args *a = args;
    const char *op = "kv_append_paged";
    QRN_TRY(qrn_check_dtype(op, "k", &a->k, err, 1, QRN_F32));
    QRN_TRY(qrn_check_shape(op, "k", &a->k, err, 3, (int64_t)-1, (int64_t)-1, (int64_t)-1));
    QRN_TRY(qrn_check_dtype(op, "v", &a->v, err, 1, QRN_F32));
    QRN_TRY(qrn_check_same_shape(op, "v", &a->v, "k", &a->k, err));
    const struct kv_pages p = pages_of(a);
    return qrn_kv_pages_check(&p, err);
}

static enum qrn_status check_data(const void *args, struct qrn_error *err)
{
    const struct kv_pages p = pages_of(args);
    return qrn_kv_pages_check_data(&p, false, err);
}

static void reference(const void *args)
{
    const struct qrn_kv_append_paged_args *a = args;
    const struct kv_pages p = pages_of(a);
    const int32_t *begin = kv_pages_i32(&a->seq_begin), *position = kv_pages_i32(&a->position);
    for (int64_t s = 0; s < kv_pages_n_seqs(&a->position); s++)
        for (int64_t t = begin[s]; t < begin[s + 1]; t++) {
            const int64_t at = position[s] + t - begin[s], page = at / 64, slot = at % 64;
            for (int64_t h = 0; h < p.n_kv_heads; h++) {
                const struct qrn_tensor k =
                    qrn_tensor_2d(p.kv_type, kv_page_head(&p, s, page, h, false), p.head_dim, 64);
                const struct qrn_tensor v =
                    qrn_tensor_2d(p.kv_type, kv_page_head(&p, s, page, h, true), 64, p.head_dim);
                for (int64_t d = 0; d < p.head_dim; d++) {
                    qrn_ref_set(&k, d, slot, 0, 0, qrn_ref_get(&a->k, t, h, d, 0));
                    qrn_ref_set(&v, slot, d, 0, 0, qrn_ref_get(&a->v, t, h, d, 0));
                }
            }
        }
}

static void cost(const void *args, double *n_flops, double *n_bytes)
{
    const struct qrn_kv_append_paged_args *a = args;
    *n_flops = 0;
    *n_bytes = 2.0 * (double)qrn_tensor_n_elements(&a->k) * (a->kv_type == QRN_F16 ? 6.0 : 8.0);
}

static const struct qrn_operand operands[] = {
    QRN_OPERAND(kv_append_paged, k, QRN_READS),
    QRN_OPERAND(kv_append_paged, v, QRN_READS),
    QRN_OPERAND(kv_append_paged, seq_begin, QRN_READS),
    QRN_OPERAND(kv_append_paged, position, QRN_READS),
    QRN_OPERAND(kv_append_paged, pages, QRN_READS), /* what it points to is written */
};

const struct qrn_op qrn_op_kv_append_paged = {
    .name = "kv_append_paged",
    .args_bytes = sizeof(struct qrn_kv_append_paged_args),
    .operands = operands,
    .n_operands = sizeof operands / sizeof *operands,
    .check = check,
    .check_data = check_data,
    .reference = reference,
    .cost = cost,
};
