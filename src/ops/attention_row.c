/* SPDX-License-Identifier: MIT
 * What the attention ops share: checks of numbers, and one row in float64. */
#include "ops/attention_row.h"

#include <inttypes.h>
#include <math.h>

enum qrn_status qrn_attention_check_heads(const char *op, int64_t n_heads, int64_t n_kv_heads,
                                          struct qrn_error *err)
{
    if (n_kv_heads < 1 || n_heads % n_kv_heads)
        return qrn_fail(err, QRN_ERR_SHAPE,
                        "%s: %" PRId64 " heads and %" PRId64 " kv heads, wants a multiple", op,
                        n_heads, n_kv_heads);
    return QRN_OK;
}

enum qrn_status qrn_attention_check_numbers(const char *op, float scale, float softcap,
                                            int64_t window, struct qrn_error *err)
{
    if (!isfinite(scale))
        return qrn_fail(err, QRN_ERR_ARGUMENT, "%s: scale is %g, wants a finite number", op,
                        (double)scale);
    if (!(softcap >= 0.0f) || isinf(softcap))
        return qrn_fail(err, QRN_ERR_ARGUMENT, "%s: softcap is %g, wants 0 or more", op,
                        (double)softcap);
    if (window < 0)
        return qrn_fail(err, QRN_ERR_ARGUMENT, "%s: window is %" PRId64 ", wants 0 or more", op,
                        window);
    return QRN_OK;
}

enum qrn_status qrn_attention_check_acts(const char *op, enum qrn_activation_type acts,
                                         struct qrn_error *err)
{
    if (acts != QRN_ACT_F32 && acts != QRN_ACT_BF16)
        return qrn_fail(err, QRN_ERR_ARGUMENT, "%s: acts is %d, wants 0 (f32) or 2 (bf16)", op,
                        (int)acts);
    return QRN_OK;
}

enum qrn_status qrn_attention_check_offset(const char *op, int64_t q_offset, struct qrn_error *err)
{
    const int64_t limit = (int64_t)1 << 40;
    if (q_offset < -limit || q_offset > limit)
        return qrn_fail(err, QRN_ERR_ARGUMENT, "%s: q_offset is %" PRId64 ", wants -2^40 to 2^40",
                        op, q_offset);
    return QRN_OK;
}

void qrn_attention_range(int64_t p, bool causal, int64_t window, int64_t n_kv, int64_t *begin,
                         int64_t *end)
{
    *end = causal && p + 1 < n_kv ? p + 1 : n_kv;
    *begin = window && p + 1 > window ? p + 1 - window : 0;
    if (*end < 0) *end = 0;
    if (*begin > *end) *begin = *end;
}

/* Score of key j; -INFINITY when it is not attended to. */
static double score(const struct attention_row *row, int64_t j)
{
    const double mask = row->mask ? row->mask(row->user, j) : 0.0;
    if (mask <= (double)ATTENTION_MASKED) return -INFINITY;
    double s = 0.0;
    for (int64_t d = 0; d < row->d_k; d++)
        s += row->query(row->user, d) * row->key(row->user, j, d);
    s *= row->scale;
    if (row->softcap != 0.0) s = row->softcap * tanh(s / row->softcap);
    return s + mask;
}

/* Dimensions first .. first + n - 1 of the output, n <= 1024: the running form of softmax. */
static void part(const struct attention_row *row, int64_t first, int64_t n)
{
    double m = -INFINITY, l = 0.0, o[1024];
    for (int64_t d = 0; d < n; d++) o[d] = 0.0;
    for (int64_t j = row->begin; j < row->end; j++) {
        const double s = score(row, j);
        if (s == -INFINITY) continue;
        if (s > m) {
            const double shrink = exp(m - s);
            l *= shrink;
            for (int64_t d = 0; d < n; d++) o[d] *= shrink;
            m = s;
        }
        const double p = exp(s - m);
        l += p;
        for (int64_t d = 0; d < n; d++) o[d] += p * row->value(row->user, j, first + d);
    }
    for (int64_t d = 0; d < n; d++) row->set_out(row->user, first + d, l == 0.0 ? 0.0 : o[d] / l);
}

void qrn_attention_row(const struct attention_row *row)
{
    for (int64_t d = 0; d < row->d_v; d += 1024)
        part(row, d, row->d_v - d < 1024 ? row->d_v - d : 1024);
}
