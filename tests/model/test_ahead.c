/* SPDX-License-Identifier: MIT
 * Steps that are queued before they are asked for (qrn_append.goes_on) change no token and no logit, whatever is done
 * instead of asking for them: on a far device, whose bits are the CPU's, and on a GPU. */
#include "support/model_test.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "support/emulated_faults.h"
#include "support/far_device.h"
#include "support/op_test.h"
#include "support/temp.h"
#include "support/toy_model.h"

enum { VOCAB = 96, N_SEQS = 3, MOST_BACK = 4, MOST_LOG = 4096 };

static struct qrn_model *open_on(struct qrn_device *dev, const char *path, size_t budget_bytes)
{
    struct qrn_error err;
    struct qrn_model *model = NULL;
    const struct qrn_model_options o = {
        .path = path, .device = dev, .max_batch = 64, .budget_bytes = budget_bytes};
    if (qrn_model_open(&o, &model, &err) != QRN_OK) fail_msg("%s", err.text);
    return model;
}

/* Off, off again, and two that need no look at tokens before. */
static const struct qrn_sampling samplings[] = {
    {.seed = 3},
    {.top_k = 5, .repeat_penalty = 1.0f},
    {.temperature = 1.5f, .seed = 1},
    {.temperature = 0.8f, .top_k = 7, .top_p = 0.9f, .seed = 9}};

/* Sequences of a model to which things are done, by chance but the same each time; all that is drawn. */
struct world {
    struct qrn_model *model;
    bool goes_on;
    struct rng r;
    struct qrn_seq *seq[N_SEQS];
    int32_t next[N_SEQS];
    unsigned chosen; /* sequences of the last step */
    int32_t log[MOST_LOG];
    int n_log;
};

static void step(struct world *w, unsigned chosen, const struct qrn_sampling *sampling, bool astray)
{
    struct qrn_append a[N_SEQS] = {{0}};
    int32_t tokens[N_SEQS];
    struct qrn_error err;
    size_t n = 0;
    for (int i = 0; i < N_SEQS; i++) {
        if (!(chosen >> i & 1)) continue;
        tokens[n] = astray ? (int32_t)rng_below(&w->r, VOCAB) : w->next[i];
        a[n] = (struct qrn_append){.seq = w->seq[i],
                                   .tokens = &tokens[n],
                                   .n_tokens = 1,
                                   .sampling = sampling,
                                   .goes_on = w->goes_on};
        n++;
    }
    if (qrn_model_append(w->model, a, n, NULL, NULL, &err) != QRN_OK) fail_msg("%s", err.text);
    n = 0;
    for (int i = 0; i < N_SEQS; i++)
        if (chosen >> i & 1) w->log[w->n_log++] = w->next[i] = a[n++].next;
}

static void begin(struct world *w, int i)
{
    int32_t ids[70];
    struct qrn_error err;
    const int64_t n = 1 + rng_below(&w->r, 70);
    for (int64_t t = 0; t < n; t++) ids[t] = (int32_t)rng_below(&w->r, VOCAB);
    struct qrn_append a = {.seq = w->seq[i] = test_seq(w->model, MOST_BACK),
                           .tokens = ids,
                           .n_tokens = n,
                           .sampling = samplings,
                           .goes_on = w->goes_on};
    if (qrn_model_append(w->model, &a, 1, NULL, NULL, &err) != QRN_OK) fail_msg("%s", err.text);
    w->log[w->n_log++] = w->next[i] = a.next;
}

static void replace(struct world *w, int i, struct qrn_seq *by)
{
    qrn_seq_destroy(w->seq[i]);
    w->seq[i] = by;
}

/* What comes in place of the step that is ahead. */
static void disturb(struct world *w)
{
    const int i = (int)rng_below(&w->r, N_SEQS), j = (i + 1) % N_SEQS;
    struct qrn_seq *other = NULL;
    struct qrn_snapshot *snapshot;
    struct qrn_error err = {.text = ""};
    enum qrn_status s = QRN_OK;
    switch (rng_below(&w->r, 6)) {
    case 0:
        s = qrn_seq_fork(w->seq[i], &other, &err);
        replace(w, j, other);
        w->next[j] = (w->next[i] + 1) % VOCAB;
        break;
    case 1: {
        const int64_t most = qrn_seq_max_rollback(w->seq[i]);
        s = qrn_seq_rollback(w->seq[i], most ? 1 + rng_below(&w->r, most) : 0, &err);
        break;
    }
    case 2:
        s = qrn_seq_save(w->seq[i], temp_path("ahead.qrnseq"), &err);
        if (s == QRN_OK) s = qrn_seq_load(w->model, temp_path("ahead.qrnseq"), 0, &other, &err);
        replace(w, i, other);
        break;
    case 3:
        s = qrn_snapshot_take(w->seq[i], &snapshot, &err);
        if (s == QRN_OK) step(w, 1u << i, samplings, true);
        if (s == QRN_OK) s = qrn_snapshot_restore(snapshot, &other, &err);
        qrn_snapshot_free(snapshot);
        replace(w, i, other);
        break;
    case 4:
        replace(w, i, NULL);
        begin(w, i);
        break;
    default:
        step(w, 1u << i, samplings, true);
    }
    if (s != QRN_OK) fail_msg("%s", err.text);
}

/* The logits after all of a sequence's tokens, of one more. */
static void log_logits(struct world *w, int i)
{
    static const int32_t token = 7;
    float logits[VOCAB];
    struct qrn_error err;
    struct qrn_append a = {.seq = w->seq[i],
                           .tokens = &token,
                           .n_tokens = 1,
                           .want = QRN_LOGITS_LAST,
                           .logits = logits};
    if (qrn_model_append(w->model, &a, 1, NULL, NULL, &err) != QRN_OK) fail_msg("%s", err.text);
    memcpy(w->log + w->n_log, logits, sizeof logits);
    w->n_log += VOCAB;
}

static void live(struct world *w, struct qrn_model *model, bool goes_on, int n_events,
                 uint64_t seed)
{
    *w = (struct world){.model = model, .goes_on = goes_on, .r = {seed}};
    const struct qrn_sampling *sampling = samplings;
    for (int i = 0; i < N_SEQS; i++) begin(w, i);
    for (int e = 0; e < n_events; e++) {
        if (e == 0 || rng_below(&w->r, 5) == 0) {
            w->chosen = 1 + (unsigned)rng_below(&w->r, (1 << N_SEQS) - 1);
            sampling = &samplings[rng_below(&w->r, sizeof samplings / sizeof *samplings)];
        }
        for (int64_t n = rng_below(&w->r, 6); n >= 0; n--) step(w, w->chosen, sampling, false);
        if (rng_below(&w->r, 3)) disturb(w);
        assert_true(w->n_log < MOST_LOG - 400);
    }
    for (int i = 0; i < N_SEQS; i++) log_logits(w, i);
    for (int i = 0; i < N_SEQS; i++) qrn_seq_destroy(w->seq[i]);
    assert_int_equal(qrn_model_memory(model).in_use_bytes, 0);
}

static void check_worlds(struct qrn_device *dev, enum toy_kind kind, int n_events, int n_seeds)
{
    struct qrn_model *model = open_on(dev, toy_model_make(kind), 0);
    static struct world with, without;
    for (int seed = 1; seed <= n_seeds; seed++) {
        live(&with, model, true, n_events, (uint64_t)seed);
        live(&without, model, false, n_events, (uint64_t)seed);
        assert_int_equal(with.n_log, without.n_log);
        for (int i = 0; i < with.n_log; i++)
            if (with.log[i] != without.log[i])
                fail_msg("seed %d: %d of %d differs: %d, wants %d", seed, i, with.n_log,
                         with.log[i], without.log[i]);
    }
    qrn_model_close(model);
}

static void test_far(void **state)
{
    (void)state;
    for (enum toy_kind kind = TOY_DENSE; kind < TOY_KINDS; kind++) {
        struct qrn_device *dev = far_device_open(1, (size_t)1 << 40);
        check_worlds(dev, kind, 60, kind == TOY_DENSE ? 6 : 2);
        far_device_close(dev);
    }
}

/* A fork where the token that is ahead has begun a page: both go on, each with a token of its own there. */
static void test_fork_at_page(void **state)
{
    (void)state;
    static struct world w[2];
    struct qrn_error err;
    struct qrn_device *dev = far_device_open(1, (size_t)1 << 40);
    struct qrn_model *model = open_on(dev, toy_model_make(TOY_DENSE), 0);
    for (int i = 0; i < 2; i++) {
        w[i] = (struct world){.model = model, .goes_on = i == 0, .r = {7}};
        w[i].seq[0] = test_seq(model, 0);
        for (int t = 0; t < 64; t++) step(&w[i], 1, samplings, false);
        if (qrn_seq_fork(w[i].seq[0], &w[i].seq[1], &err) != QRN_OK) fail_msg("%s", err.text);
        w[i].next[1] = (w[i].next[0] + 1) % VOCAB;
        w[i].goes_on = false;
        step(&w[i], 1, samplings, false);
        step(&w[i], 2, samplings, false);
        for (int s = 0; s < 2; s++) log_logits(&w[i], s);
        for (int s = 0; s < 2; s++) qrn_seq_destroy(w[i].seq[s]);
    }
    assert_memory_equal(w[0].log, w[1].log, sizeof w[0].log);
    qrn_model_close(model);
    far_device_close(dev);
}

static void test_gpu(void **state)
{
    (void)state;
    struct qrn_error err;
    struct qrn_device *dev = emulated_open_late(&err);
    if (!dev) skip();
    const char *which = getenv("QRN_TEST_CUDA");
    const bool is_real = which && strcmp(which, "real") == 0;
    check_worlds(dev, TOY_DENSE, is_real ? 60 : 8, is_real ? 6 : 1);
    qrn_device_close(dev);
}

/* A token is queued before it is asked for, over edges and pages too, and nobody waits for all; what is ahead at the end
 * is waited for when its sequence goes. */
static void test_queued(void **state)
{
    enum { N = 140 };
    (void)state;
    struct qrn_error err;
    struct qrn_device *dev = far_device_open(1, (size_t)1 << 40);
    struct qrn_model *model = open_on(dev, toy_model_make(TOY_DENSE), 0);
    struct qrn_seq *seq = test_seq(model, 0);
    int32_t token = 5;
    struct far_counts first = {0};
    for (int i = 0; i < N; i++) {
        struct qrn_append a = {
            .seq = seq, .tokens = &token, .n_tokens = 1, .sampling = samplings, .goes_on = true};
        if (i == 1) first = far_device_counts();
        if (qrn_model_append(model, &a, 1, NULL, NULL, &err) != QRN_OK) fail_msg("%s", err.text);
        token = a.next;
        if (i == 0) continue;
        const struct far_counts now = far_device_counts();
        assert_int_equal(now.waits - first.waits, 0);
        assert_int_equal(now.submits - first.submits, i);
        assert_int_equal(now.fetches - first.fetches, i);
        assert_int_equal(now.uploads - first.uploads, i);
        assert_int_equal(now.reads - first.reads, 0);
    }
    assert_int_equal(qrn_seq_n_tokens(seq), N);
    struct qrn_seq *fork; /* waits for what is ahead */
    if (qrn_seq_fork(seq, &fork, &err) != QRN_OK) fail_msg("%s", err.text);
    assert_int_equal(far_device_counts().waits - first.waits, 1);
    qrn_seq_destroy(fork);
    for (int i = 0; i < 2; i++) { /* of two steps the first one has one ahead */
        struct qrn_append a = {
            .seq = seq, .tokens = &token, .n_tokens = 1, .sampling = samplings, .goes_on = i == 0};
        const struct far_counts before = far_device_counts();
        if (qrn_model_append(model, &a, 1, NULL, NULL, &err) != QRN_OK) fail_msg("%s", err.text);
        token = a.next;
        assert_int_equal(far_device_counts().submits - before.submits, i == 0 ? 2 : 0);
    }
    qrn_seq_destroy(seq);
    assert_int_equal(far_device_counts().waits - first.waits, 1);
    qrn_model_close(model);
    far_device_close(dev);
}

static bool stop(void *user)
{
    return *(bool *)user;
}

/* Cancelled, refused for want of memory, at the end of the context: what is ahead is dropped, or was never there. */
static void test_stopped(void **state)
{
    (void)state;
    struct qrn_error err;
    bool stops = true;
    struct qrn_device *dev = far_device_open(1, (size_t)1 << 40);
    struct qrn_model *model = open_on(dev, toy_model_make(TOY_DENSE), 0);
    struct qrn_seq *seq = test_seq(model, 0);
    int32_t token = 5;
    struct qrn_append a = {
        .seq = seq, .tokens = &token, .n_tokens = 1, .sampling = samplings, .goes_on = true};
    if (qrn_model_append(model, &a, 1, NULL, NULL, &err) != QRN_OK) fail_msg("%s", err.text);
    const int32_t next = a.next;
    token = next;
    assert_int_equal(qrn_model_append(model, &a, 1, stop, &stops, &err), QRN_ERR_CANCELLED);
    assert_int_equal(qrn_seq_n_tokens(seq), 1);
    stops = false;
    if (qrn_model_append(model, &a, 1, stop, &stops, &err) != QRN_OK) fail_msg("%s", err.text);
    assert_int_equal(qrn_seq_n_tokens(seq), 2);
    const size_t most = qrn_model_memory(model).in_use_bytes;
    qrn_seq_destroy(seq);
    qrn_model_close(model);

    /* Room for one page only: the 65th token is refused when it is asked for, and not before. */
    model = open_on(dev, toy_model_make(TOY_DENSE), most);
    a.seq = seq = test_seq(model, 0);
    token = 5;
    for (int i = 0; i < 63; i++) {
        if (qrn_model_append(model, &a, 1, NULL, NULL, &err) != QRN_OK) fail_msg("%s", err.text);
        token = a.next;
    }
    assert_int_equal(qrn_seq_n_tokens(seq), 63);
    assert_int_equal(qrn_model_append(model, &a, 1, NULL, NULL, &err), QRN_ERR_LIMIT);
    assert_int_equal(qrn_seq_n_tokens(seq), 63);
    qrn_seq_destroy(seq);
    qrn_model_close(model);
    far_device_close(dev);
}

/* Two threads, each with a sequence of one model, that drop what the other has ahead. */
struct talker {
    struct qrn_model *model;
    int32_t drawn[80];
};

static void *talk(void *user)
{
    struct talker *t = user;
    struct qrn_seq *seq = NULL, *fork;
    struct qrn_error err;
    int32_t token = 11;
    if (qrn_seq_create(t->model, NULL, &seq, &err) != QRN_OK) return NULL;
    for (int i = 0; i < 80; i++) {
        struct qrn_append a = {.seq = seq,
                               .tokens = &token,
                               .n_tokens = 1,
                               .sampling = &samplings[2],
                               .goes_on = i % 7 != 0};
        if (qrn_model_append(t->model, &a, 1, NULL, NULL, &err) != QRN_OK) break;
        t->drawn[i] = token = a.next;
        if (i % 5) continue;
        if (qrn_seq_fork(seq, &fork, &err) != QRN_OK) break;
        qrn_seq_destroy(seq);
        seq = fork;
    }
    qrn_seq_destroy(seq);
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    struct qrn_device *dev = far_device_open(1, (size_t)1 << 40);
    struct qrn_model *model = open_on(dev, toy_model_make(TOY_DENSE), 0);
    struct talker alone = {.model = model}, both[2] = {{.model = model}, {.model = model}};
    pthread_t threads[2];
    (void)talk(&alone);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, talk, &both[i]), 0);
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < 2; i++) assert_memory_equal(both[i].drawn, alone.drawn, sizeof alone.drawn);
    qrn_model_close(model);
    far_device_close(dev);
}

/* Tokens one after the other, each queued ahead: the first failure, with everything closed again. */
static enum qrn_status run_session(struct qrn_device *dev, void *path, struct qrn_error *err)
{
    struct qrn_model *model = NULL;
    struct qrn_seq *seq = NULL;
    int32_t token = 5;
    const struct qrn_model_options o = {.path = path, .device = dev, .max_batch = 64};
    enum qrn_status s = qrn_model_open(&o, &model, err);
    if (s == QRN_OK) s = qrn_seq_create(model, NULL, &seq, err);
    for (int i = 0; i < 4 && s == QRN_OK; i++) {
        struct qrn_append a = {
            .seq = seq, .tokens = &token, .n_tokens = 1, .sampling = samplings, .goes_on = true};
        s = qrn_model_append(model, &a, 1, NULL, NULL, err);
        assert_int_equal(qrn_seq_n_tokens(seq), i + (s == QRN_OK));
        token = a.next;
    }
    qrn_seq_destroy(seq);
    qrn_model_close(model);
    return s;
}

static void test_gpu_failures(void **state)
{
    char path[512];
    (void)state;
    (void)snprintf(path, sizeof path, "%s", toy_model_make(TOY_DENSE));
    emulated_faults_in_turn(5, 23, run_session, path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_far),          cmocka_unit_test(test_fork_at_page),
        cmocka_unit_test(test_queued),       cmocka_unit_test(test_stopped),
        cmocka_unit_test(test_threads),      cmocka_unit_test(test_gpu),
        cmocka_unit_test(test_gpu_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
