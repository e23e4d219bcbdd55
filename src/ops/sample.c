/* SPDX-License-Identifier: MIT
 * sample: checks and reference. */
#include "core/op.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include "base/philox.h"

static enum qrn_status check_number(const char *name, float value, float low, float high,
                                    struct qrn_error *err)
{
    if (value >= low && value <= high) return QRN_OK;
    return qrn_fail(err, QRN_ERR_ARGUMENT, "sample: %s is %g, wants %g to %g", name, (double)value,
                    (double)low, (double)high);
}

static enum qrn_status check(const void *args, struct qrn_error *err)
{
    const struct qrn_sample_args *a = args;
    QRN_TRY(qrn_check_dtype("sample", "logits", &a->logits, err, 1, QRN_F32));
    QRN_TRY(qrn_check_shape("sample", "logits", &a->logits, err, 1, (int64_t)-1));
    if (a->logits.shape[0] < 1 || a->logits.shape[0] > INT32_MAX)
        return qrn_fail(err, QRN_ERR_SHAPE, "sample: logits.shape[0] is %" PRId64
                        ", wants 1 to %" PRId32, a->logits.shape[0], INT32_MAX);
    QRN_TRY(qrn_check_dtype("sample", "id", &a->id, err, 1, QRN_I32));
    QRN_TRY(qrn_check_shape("sample", "id", &a->id, err, 1, (int64_t)1));
    if (qrn_tensor_present(&a->history)) {
        QRN_TRY(qrn_check_dtype("sample", "history", &a->history, err, 1, QRN_I32));
        QRN_TRY(qrn_check_shape("sample", "history", &a->history, err, 1, (int64_t)-1));
    }
    if (qrn_tensor_present(&a->probability)) {
        QRN_TRY(qrn_check_dtype("sample", "probability", &a->probability, err, 1, QRN_F32));
        QRN_TRY(qrn_check_shape("sample", "probability", &a->probability, err, 1, (int64_t)1));
    }
    if (a->top_k < 0)
        return qrn_fail(err, QRN_ERR_ARGUMENT, "sample: top_k is %" PRId32 ", wants 0 or more",
                        a->top_k);
    QRN_TRY(check_number("temperature", a->temperature, 0.0f, FLT_MAX, err));
    QRN_TRY(check_number("top_p", a->top_p, 0.0f, 1.0f, err));
    QRN_TRY(check_number("min_p", a->min_p, 0.0f, 1.0f, err));
    QRN_TRY(check_number("repeat_penalty", a->repeat_penalty, 0.0f, FLT_MAX, err));
    QRN_TRY(check_number("presence_penalty", a->presence_penalty, -FLT_MAX, FLT_MAX, err));
    return check_number("frequency_penalty", a->frequency_penalty, -FLT_MAX, FLT_MAX, err);
}

static enum qrn_status check_data(const void *args, struct qrn_error *err)
{
    const struct qrn_sample_args *a = args;
    const int64_t n_vocab = a->logits.shape[0];
    for (int64_t i = 0; a->history.n_dims && i < a->history.shape[0]; i++) {
        const int32_t id = ((const int32_t *)a->history.data)[i];
        if (id < 0 || id >= n_vocab)
            return qrn_fail(err, QRN_ERR_ARGUMENT, "sample: history[%" PRId64 "] is %" PRId32
                            ", wants 0 to %" PRId64, i, id, n_vocab - 1);
    }
    for (int64_t i = 0; i < n_vocab; i++)
        if (((const float *)a->logits.data)[i] > -INFINITY) return QRN_OK;
    return qrn_fail(err, QRN_ERR_ARGUMENT,
                    "sample: none of the %" PRId64 " logits is above -inf: no token can be drawn",
                    n_vocab);
}

/* A logit after penalties; -inf for what is never drawn. */
static double logit(const struct qrn_sample_args *a, int64_t id)
{
    double x = qrn_ref_get(&a->logits, id, 0, 0, 0), n = 0.0;
    if (!(x > -INFINITY)) return -INFINITY;
    for (int64_t i = 0; a->history.n_dims && i < a->history.shape[0]; i++)
        n += qrn_ref_get(&a->history, i, 0, 0, 0) == (double)id;
    if (n == 0.0) return x;
    if (a->repeat_penalty != 0.0f)
        x = x > 0.0 ? x / (double)a->repeat_penalty : x * (double)a->repeat_penalty;
    return x - n * (double)a->frequency_penalty - (double)a->presence_penalty;
}

static bool before(const struct qrn_sample_args *a, int64_t i, int64_t j)
{
    const double x = logit(a, i), y = logit(a, j);
    return x != y ? x > y : i < j;
}

/* The token that follows id in rank; -1 follows the last one and is followed by the first. */
static int64_t next_in_rank(const struct qrn_sample_args *a, int64_t id)
{
    int64_t best = -1;
    for (int64_t i = 0; i < a->logits.shape[0]; i++)
        if ((id < 0 || before(a, id, i)) && (best < 0 || before(a, i, best))) best = i;
    return best;
}

static double weight(const struct qrn_sample_args *a, int64_t id, double largest,
                     double temperature)
{
    const double x = logit(a, id);
    return x == largest ? 1.0 : exp((x - largest) / temperature);
}

/* The last token in rank that top_k and top_p keep. */
static int64_t last_kept(const struct qrn_sample_args *a, int64_t first)
{
    const int64_t n_vocab = a->logits.shape[0];
    const int64_t k = a->top_k > 0 && a->top_k < n_vocab ? a->top_k : n_vocab;
    const double largest = logit(a, first);
    double total = 0.0, sum = 0.0;
    int64_t last = first;
    for (int64_t r = 0, id = first; r < k; r++, id = next_in_rank(a, id)) {
        total += weight(a, id, largest, 1.0);
        last = id;
    }
    if (a->top_p == 0.0f || a->top_p == 1.0f) return last;
    for (int64_t id = first; id != last; id = next_in_rank(a, id)) {
        sum += weight(a, id, largest, 1.0);
        if (sum >= (double)a->top_p * total) return id;
    }
    return last;
}

static void reference(const void *args)
{
    const struct qrn_sample_args *a = args;
    const int64_t n_vocab = a->logits.shape[0], first = next_in_rank(a, -1);
    const double largest = logit(a, first), t = (double)a->temperature;
    double total = 0.0, sum = 0.0, of_chosen = 1.0;
    int64_t chosen = first;
    if (a->temperature > 0.0f) {
        const int64_t last = last_kept(a, first);
        const double u = qrn_uniform_at(a->seed, a->position);
        for (int pass = 0; pass < 2; pass++)
            for (int64_t i = 0; i < n_vocab; i++) {
                const bool kept =
                    !before(a, last, i) && weight(a, i, largest, 1.0) >= (double)a->min_p;
                const double w = kept ? weight(a, i, largest, t) : 0.0;
                if (pass == 0) total += w;
                if (pass == 1 && sum <= u * total && w > 0.0) {
                    chosen = i;
                    of_chosen = w / total;
                }
                if (pass == 1) sum += w;
            }
    }
    qrn_ref_set(&a->id, 0, 0, 0, 0, (double)chosen);
    if (a->probability.n_dims) qrn_ref_set(&a->probability, 0, 0, 0, 0, of_chosen);
}

static void cost(const void *args, double *n_flops, double *n_bytes)
{
    const struct qrn_sample_args *a = args;
    *n_flops = (double)a->logits.shape[0];
    *n_bytes = 4.0 * (double)a->logits.shape[0];
}

static const struct qrn_operand operands[] = {
    QRN_OPERAND(sample, logits, QRN_READS),
    QRN_OPERAND(sample, history, QRN_READS | QRN_OPTIONAL),
    QRN_OPERAND(sample, id, QRN_WRITES),
    QRN_OPERAND(sample, probability, QRN_WRITES | QRN_OPTIONAL),
};

const struct qrn_op qrn_op_sample = {
    .name = "sample",
    .args_bytes = sizeof(struct qrn_sample_args),
    .operands = operands,
    .n_operands = sizeof operands / sizeof *operands,
    .check = check,
    .check_data = check_data,
    .checks_floats = true,
    .reference = reference,
    .cost = cost,
};
