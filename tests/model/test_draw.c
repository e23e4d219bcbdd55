/* SPDX-License-Identifier: MIT
 * Tokens drawn where the logits are made: the ids that qrn_sample gives for the same logits on the CPU,
 * from the CPU's own models, from those on a far device and on a GPU. */
#include "support/model_test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "support/emulated_faults.h"
#include "support/far_device.h"
#include "support/op_test.h"
#include "support/toy_model.h"

enum { N_SEQS = 7, N_IDS = 160, VOCAB = 96 };

static struct qrn_model *open_on(struct qrn_device *dev, const char *path)
{
    struct qrn_error err;
    struct qrn_model *model = NULL;
    const struct qrn_model_options o = {
        .path = path, .device = dev, .exact = true, .max_batch = 64};
    if (qrn_model_open(&o, &model, &err) != QRN_OK) fail_msg("%s", err.text);
    return model;
}

/* What is off (twice), what filters, penalties that look at the last tokens, at all, and of the likeliest. */
static const struct qrn_sampling samplings[N_SEQS] = {
    {.seed = 3},
    {.top_k = 5, .repeat_penalty = 1.0f},
    {.temperature = 1.5f, .seed = 1},
    {.temperature = 0.8f, .top_k = 7, .top_p = 0.9f, .min_p = 0.05f, .seed = 1},
    {.temperature = 2.0f, .repeat_penalty = 1.7f, .n_penalised = 9, .seed = 77},
    {.temperature = 3.0f,
     .top_p = 0.99f,
     .presence_penalty = 0.6f,
     .frequency_penalty = 0.2f,
     .n_penalised = -1,
     .seed = 1ull << 40},
    {.repeat_penalty = 3.0f, .presence_penalty = 4.0f, .n_penalised = -1},
};
/* Within a batch of 64 tokens and over several. */
static const int64_t prompts[N_SEQS] = {3, 8, 70, 1, 20, 130, 40};

/* qrn_sample on the CPU for logits after all of the sequence's tokens. */
static int32_t reference(struct qrn_device *cpu, const struct qrn_seq *seq,
                         const struct qrn_sampling *s, const float *logits, float *probability)
{
    struct qrn_error err;
    int32_t id = -1;
    const int64_t n = qrn_seq_n_tokens(seq);
    const int64_t n_back = s->n_penalised < 0 || s->n_penalised > n ? n : s->n_penalised;
    struct qrn_sample_args a = {.logits = qrn_tensor_1d(QRN_F32, logits, VOCAB),
                                .id = qrn_tensor_1d(QRN_I32, &id, 1),
                                .probability = qrn_tensor_1d(QRN_F32, probability, 1),
                                .temperature = s->temperature,
                                .top_k = s->top_k,
                                .top_p = s->top_p,
                                .min_p = s->min_p,
                                .repeat_penalty = s->repeat_penalty,
                                .presence_penalty = s->presence_penalty,
                                .frequency_penalty = s->frequency_penalty,
                                .seed = s->seed,
                                .position = (uint64_t)n};
    if (n_back) a.history = qrn_tensor_1d(QRN_I32, qrn_seq_tokens(seq) + n - n_back, n_back);
    if (qrn_sample(cpu, &a, &err) != QRN_OK) fail_msg("%s", err.text);
    return id;
}

/* Each append twice: with its logits, and for the token alone. */
static void check_draws(struct qrn_device *dev, int n_steps, bool same_bits)
{
    struct qrn_error err;
    struct qrn_device *cpu = test_device(1);
    struct qrn_model *model = open_on(dev, toy_model_make(TOY_DENSE));
    struct qrn_append a[2 * N_SEQS];
    int32_t ids[N_IDS], next[2 * N_SEQS];
    float logits[N_SEQS][VOCAB], probability;
    struct rng r = {41};
    int n_others = 0; /* than the likeliest */
    for (int i = 0; i < N_IDS; i++) ids[i] = (int32_t)rng_below(&r, VOCAB);
    for (int i = 0; i < 2 * N_SEQS; i++)
        a[i] = (struct qrn_append){.seq = test_seq(model, 0),
                                   .tokens = ids,
                                   .n_tokens = prompts[i % N_SEQS],
                                   .want = i < N_SEQS ? QRN_LOGITS_LAST : QRN_LOGITS_NONE,
                                   .logits = i < N_SEQS ? logits[i] : NULL,
                                   .sampling = &samplings[i % N_SEQS]};
    for (int step = 0; step < n_steps; step++) {
        for (int i = 0; i < 2 * N_SEQS; i++) a[i].next = 12345;
        if (qrn_model_append(model, a, 2 * N_SEQS, NULL, NULL, &err) != QRN_OK)
            fail_msg("%s", err.text);
        for (int i = 0; i < 2 * N_SEQS; i++) {
            const float *of = logits[i % N_SEQS];
            const int32_t want = reference(cpu, a[i].seq, &samplings[i % N_SEQS], of, &probability);
            if (a[i].next != want)
                fail_msg("sequence %d, step %d: token %d, wants %d", i, step, a[i].next, want);
            if (same_bits)
                assert_memory_equal(&a[i].next_probability, &probability, sizeof probability);
            assert_true(fabsf(a[i].next_probability - probability) <= 1e-5f);
            for (int t = 0; t < VOCAB; t++)
                if (of[t] > of[want]) {
                    n_others++;
                    break;
                }
            next[i] = want;
            a[i].tokens = &next[i];
            a[i].n_tokens = 1;
        }
    }
    assert_true(n_others > 0);
    for (int i = 0; i < 2 * N_SEQS; i++) qrn_seq_destroy(a[i].seq);
    qrn_model_close(model);
    qrn_device_close(cpu);
}

static void test_draws(void **state)
{
    (void)state;
    struct qrn_error err;
    struct qrn_device *dev = test_device(2);
    check_draws(dev, 40, true);
    qrn_device_close(dev);
    dev = far_device_open(1, (size_t)1 << 40);
    check_draws(dev, 40, true);
    far_device_close(dev);
    dev = emulated_open_late(&err);
    if (!dev) skip();
    check_draws(dev, 2, false);
    qrn_device_close(dev);
}

/* Numbers that qrn_sample refuses are refused before anything is done; no tokens, no draw. */
static void test_refused(void **state)
{
    (void)state;
    struct qrn_error err;
    struct qrn_device *dev = test_device(1);
    struct qrn_model *model = open_on(dev, toy_model_make(TOY_DENSE));
    static const int32_t ids[] = {1, 2, 3};
    const struct qrn_sampling bad = {.temperature = 1.0f, .top_p = 2.0f};
    struct qrn_append a[3] = {{.n_tokens = 3, .sampling = &bad},
                              {.n_tokens = 3, .sampling = &samplings[0]},
                              {.n_tokens = 0, .sampling = &samplings[0]}};
    for (int i = 0; i < 3; i++) {
        a[i].seq = test_seq(model, 0);
        a[i].tokens = ids;
        a[i].next = 12345;
    }
    assert_int_equal(qrn_model_append(model, a, 3, NULL, NULL, &err), QRN_ERR_ARGUMENT);
    assert_non_null(strstr(err.text, "append 0: sample: top_p is 2, wants 0 to 1"));
    assert_int_equal(a[0].status, QRN_ERR_ARGUMENT);
    assert_int_equal(qrn_seq_n_tokens(a[0].seq), 0);
    assert_int_equal(a[0].next, -1);
    assert_int_equal(a[1].status, QRN_OK);
    assert_true(a[1].next >= 0 && a[1].next < VOCAB);
    assert_int_equal(a[2].status, QRN_OK);
    assert_int_equal(a[2].next, -1);
    for (int i = 0; i < 3; i++) qrn_seq_destroy(a[i].seq);
    qrn_model_close(model);
    qrn_device_close(dev);
}

/* The toy with NaN in its last norm. */
static const char *make_broken_toy(void)
{
    const char *dir = toy_model_make(TOY_DENSE);
    char from[600], to[600];
    struct qrn_error err;
    struct qrn_safetensors st;
    if (qrn_safetensors_open_dir(dir, NULL, NULL, &st, &err) != QRN_OK) fail_msg("%s", err.text);
    struct qrn_archive_tensor *tensors = calloc(st.archive.n_tensors, sizeof *tensors);
    uint8_t ones[4096];
    int n_changed = 0;
    memset(ones, 255, sizeof ones);
    for (size_t i = 0; i < st.archive.n_tensors; i++) {
        const char *name = (tensors[i] = st.archive.tensors[i]).name;
        if (!strstr(name, "norm.weight") || strstr(name, "layers")) continue;
        assert_true(tensors[i].n_bytes <= sizeof ones);
        tensors[i].data = ones;
        n_changed++;
    }
    assert_int_equal(n_changed, 1);
    (void)snprintf(from, sizeof from, "%s/broken", dir);
    (void)snprintf(to, sizeof to, "%s/model.safetensors", dir);
    if (qrn_safetensors_write(from, tensors, st.archive.n_tensors, NULL, &err) != QRN_OK)
        fail_msg("%s", err.text);
    qrn_safetensors_close(&st);
    free(tensors);
    assert_int_equal(rename(from, to), 0);
    return dir;
}

/* Where there is nothing to draw the append is refused, and no other. */
static void check_nothing_to_draw(struct qrn_device *dev, const struct qrn_sampling *sampling)
{
    struct qrn_error err;
    struct qrn_model *model = open_on(dev, make_broken_toy());
    static const int32_t ids[] = {1, 2, 3};
    struct qrn_append a[2] = {{.n_tokens = 3, .sampling = sampling}, {.n_tokens = 2}};
    for (int i = 0; i < 2; i++) {
        a[i].seq = test_seq(model, 0);
        a[i].tokens = ids;
    }
    assert_int_equal(qrn_model_append(model, a, 2, NULL, NULL, &err), QRN_ERR_ARGUMENT);
    assert_non_null(strstr(err.text, "no token can be drawn"));
    assert_int_equal(a[0].status, QRN_ERR_ARGUMENT);
    assert_int_equal(a[0].next, -1);
    assert_int_equal(qrn_seq_n_tokens(a[0].seq), 0);
    assert_int_equal(a[1].status, QRN_OK);
    assert_int_equal(qrn_seq_n_tokens(a[1].seq), 2);
    for (int i = 0; i < 2; i++) qrn_seq_destroy(a[i].seq);
    qrn_model_close(model);
}

static void test_nothing_to_draw(void **state)
{
    (void)state;
    struct qrn_error err;
    struct qrn_device *dev = test_device(1);
    for (int i = 0; i < 3; i++) check_nothing_to_draw(dev, &samplings[i]);
    qrn_device_close(dev);
    dev = op_test_open_gpu(&err);
    if (!dev) skip();
    for (int i = 0; i < 3; i++) check_nothing_to_draw(dev, &samplings[i]);
    qrn_device_close(dev);
}

/* Ids and probabilities are all that comes back. */
static void test_traffic(void **state)
{
    (void)state;
    struct qrn_error err;
    struct qrn_device *dev = far_device_open(1, (size_t)1 << 40);
    struct qrn_model *model = open_on(dev, toy_model_make(TOY_MOE));
    struct qrn_append a = {.seq = test_seq(model, 0), .n_tokens = 1, .sampling = &samplings[5]};
    int32_t next = 5;
    for (int i = 0; i < 70; i++, next = a.next) {
        a.tokens = &next;
        const struct far_counts before = far_device_counts();
        if (qrn_model_append(model, &a, 1, NULL, NULL, &err) != QRN_OK) fail_msg("%s", err.text);
        const struct far_counts after = far_device_counts();
        assert_int_equal(after.uploads - before.uploads, 2); /* tables; tokens to look at */
        assert_int_equal(after.fetches - before.fetches, 1);
        assert_int_equal(after.reads - before.reads, 0);
        assert_int_equal(after.writes - before.writes, 0);
        assert_true(after.fetched_bytes - before.fetched_bytes <= 512);
    }
    qrn_seq_destroy(a.seq);
    qrn_model_close(model);
    far_device_close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_draws),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_nothing_to_draw),
        cmocka_unit_test(test_traffic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
