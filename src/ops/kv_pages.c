/* SPDX-License-Identifier: MIT
 * Checks of sequences whose keys and values lie in pages. */
#include "ops/kv_pages.h"

#include <inttypes.h>
#include "base/memory.h"

size_t qrn_kv_page_bytes(enum qrn_dtype kv_type, int64_t n_kv_heads, int64_t head_dim)
{
    size_t n = 2 * QRN_KV_PAGE_TOKENS * (kv_type == QRN_F16 ? 2 : 4);
    if (kv_type != QRN_F16 && kv_type != QRN_F32) return 0;
    if (n_kv_heads < 1 || head_dim < 1 || !qrn_mul_size(n, (size_t)n_kv_heads, &n) ||
        !qrn_mul_size(n, (size_t)head_dim, &n))
        return 0;
    return n;
}

enum qrn_status qrn_kv_pages_check(const struct kv_pages *p, struct qrn_error *err)
{
    QRN_TRY(qrn_check_dtype(p->op, "position", p->position, err, 1, QRN_I32));
    QRN_TRY(qrn_check_shape(p->op, "position", p->position, err, 1, (int64_t)-1));
    const int64_t n_seqs = p->position->shape[0];
    QRN_TRY(qrn_check_dtype(p->op, "seq_begin", p->seq_begin, err, 1, QRN_I32));
    QRN_TRY(qrn_check_shape(p->op, "seq_begin", p->seq_begin, err, 1, n_seqs + 1));
    QRN_TRY(qrn_check_dtype(p->op, "pages", p->pages, err, 1, QRN_ADDRESS));
    QRN_TRY(qrn_check_shape(p->op, "pages", p->pages, err, 2, n_seqs, (int64_t)-1));
    if (p->kv_type != QRN_F32 && p->kv_type != QRN_F16)
        return qrn_fail(err, QRN_ERR_DTYPE, "%s: kv_type is %d, wants f32 (%d) or f16 (%d)", p->op,
                        (int)p->kv_type, QRN_F32, QRN_F16);
    if (p->page_offset < 0 || p->page_offset % 64)
        return qrn_fail(err, QRN_ERR_ARGUMENT,
                        "%s: page_offset is %" PRId64 ", wants a multiple of 64, 0 or more", p->op,
                        p->page_offset);
    if (qrn_kv_page_bytes(p->kv_type, p->n_kv_heads, p->head_dim) == 0)
        return qrn_fail(err, QRN_ERR_SHAPE,
                        "%s: %" PRId64 " kv heads of %" PRId64 " elements make no page", p->op,
                        p->n_kv_heads, p->head_dim);
    return QRN_OK;
}

static enum qrn_status check_sequence(const struct kv_pages *p, bool from_first, int64_t s,
                                      int64_t n_new, struct qrn_error *err)
{
    const int64_t position = kv_pages_i32(p->position)[s], max_pages = p->pages->shape[1];
    const uint64_t *table = (const uint64_t *)p->pages->data + s * p->pages->stride[0];
    if (position < 0)
        return qrn_fail(err, QRN_ERR_ARGUMENT,
                        "%s: position[%" PRId64 "] is %" PRId64 ", wants 0 or more", p->op, s,
                        position);
    if (n_new == 0) return QRN_OK;
    const int64_t last = (position + n_new - 1) / QRN_KV_PAGE_TOKENS;
    if (last >= max_pages)
        return qrn_fail(err, QRN_ERR_LIMIT,
                        "%s: sequence %" PRId64 " ends at position %" PRId64 ", its %" PRId64
                        " pages hold %" PRId64,
                        p->op, s, position + n_new, max_pages, max_pages * QRN_KV_PAGE_TOKENS);
    for (int64_t i = from_first ? 0 : position / QRN_KV_PAGE_TOKENS; i <= last; i++)
        if (table[i] == 0 || table[i] % 64)
            return qrn_fail(err, QRN_ERR_ARGUMENT,
                            "%s: pages[%" PRId64 "][%" PRId64 "] is %#" PRIx64
                            ", wants an address, a multiple of 64",
                            p->op, s, i, table[i]);
    return QRN_OK;
}

enum qrn_status qrn_kv_pages_check_data(const struct kv_pages *p, bool from_first,
                                        struct qrn_error *err)
{
    const int32_t *begin = kv_pages_i32(p->seq_begin);
    const int64_t n_seqs = kv_pages_n_seqs(p->position);
    if (begin[0] != 0)
        return qrn_fail(err, QRN_ERR_ARGUMENT, "%s: seq_begin[0] is %" PRId32 ", wants 0", p->op,
                        begin[0]);
    for (int64_t s = 0; s < n_seqs; s++)
        if (begin[s + 1] < begin[s])
            return qrn_fail(err, QRN_ERR_ARGUMENT,
                            "%s: seq_begin[%" PRId64 "] is %" PRId32 ", wants %" PRId32 " or more",
                            p->op, s + 1, begin[s + 1], begin[s]);
    if (begin[n_seqs] != p->n_tokens)
        return qrn_fail(err, QRN_ERR_ARGUMENT,
                        "%s: seq_begin[%" PRId64 "] is %" PRId32 ", wants the %" PRId64 " tokens",
                        p->op, n_seqs, begin[n_seqs], p->n_tokens);
    for (int64_t s = 0; s < n_seqs; s++)
        QRN_TRY(check_sequence(p, from_first, s, (int64_t)begin[s + 1] - begin[s], err));
    return QRN_OK;
}
