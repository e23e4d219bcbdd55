/* SPDX-License-Identifier: MIT
 * What tests of models share. */
#include "support/model_test.h"

#include <math.h>
#include <stdlib.h>

struct qrn_device *test_device(int n_threads)
{
    struct qrn_error err;
    struct qrn_device *dev = NULL;
    const struct qrn_device_options o = {.n_threads = n_threads};
    if (qrn_device_open(&o, &dev, &err) != QRN_OK) fail_msg("%s", err.text);
    return dev;
}

struct qrn_model *test_model(struct qrn_device *dev, const char *path, bool exact,
                             enum qrn_kv_type kv)
{
    struct qrn_error err;
    struct qrn_model *model = NULL;
    const struct qrn_model_options o = {.path = path, .device = dev, .exact = exact, .kv = kv};
    if (qrn_model_open(&o, &model, &err) != QRN_OK) fail_msg("%s", err.text);
    return model;
}

struct qrn_seq *test_seq(struct qrn_model *model, int max_rollback)
{
    struct qrn_error err;
    struct qrn_seq *seq = NULL;
    const struct qrn_seq_options o = {.max_rollback = max_rollback};
    if (qrn_seq_create(model, &o, &seq, &err) != QRN_OK) fail_msg("%s", err.text);
    return seq;
}

float *test_append_all(struct qrn_model *model, struct qrn_seq *seq, const int32_t *ids, int64_t n,
                       int64_t cut)
{
    struct qrn_error err;
    const int64_t vocab_size = qrn_model_info(model)->vocab_size;
    float *logits = malloc((size_t)(n * vocab_size) * sizeof *logits);
    assert_non_null(logits);
    for (int64_t i = 0; i < n;) {
        const int64_t m = cut && cut < n - i ? cut : n - i;
        struct qrn_append a = {.seq = seq,
                               .tokens = ids + i,
                               .n_tokens = m,
                               .want = QRN_LOGITS_ALL,
                               .logits = logits + i * vocab_size};
        if (qrn_model_append(model, &a, 1, NULL, NULL, &err) != QRN_OK) fail_msg("%s", err.text);
        assert_int_equal(a.n_done, m);
        i += m;
    }
    return logits;
}

void test_open_reference(const char *path, struct qrn_safetensors *st)
{
    struct qrn_error err;
    if (qrn_safetensors_open(path, NULL, NULL, st, &err) != QRN_OK) fail_msg("%s", err.text);
}

const struct qrn_archive_tensor *test_reference(const struct qrn_safetensors *st, const char *name)
{
    const struct qrn_archive_tensor *t = qrn_archive_find(&st->archive, name);
    if (!t) fail_msg("the reference file has no \"%s\"", name);
    return t;
}

const float *test_floats(const struct qrn_safetensors *st, const char *name)
{
    return (const float *)(const void *)test_reference(st, name)->data;
}

const int32_t *test_ids(const struct qrn_safetensors *st, const char *name, int64_t *n)
{
    const struct qrn_archive_tensor *t = test_reference(st, name);
    *n = t->shape[0];
    return (const int32_t *)(const void *)t->data;
}

double test_max_difference(const float *a, const float *b, int64_t n)
{
    double worst = 0.0;
    for (int64_t i = 0; i < n; i++) {
        const double d = fabs((double)a[i] - (double)b[i]);
        if (!(d <= worst)) worst = d;
    }
    return worst;
}
