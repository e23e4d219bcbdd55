/* SPDX-License-Identifier: MIT
 * Sequences and steps: what is refused, with which words; what does not disturb others; memory. */
#include "support/counting_allocator.h"
#include "support/model_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "core/pool.h"
#include "model/model_impl.h"
#include "support/temp.h"
#include "support/toy_model.h"

static char toy[512];
static struct qrn_device *dev;

static int setup(void **state)
{
    (void)state;
    (void)snprintf(toy, sizeof toy, "%s", temp_path("toy"));
    (void)mkdir(toy, 0700);
    toy_model_write(toy, TOY_MOE);
    dev = test_device(2);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    qrn_device_close(dev);
    return 0;
}

static void expect(enum qrn_status got, enum qrn_status want, const struct qrn_error *err,
                   const char *fragment)
{
    if (got != want || !strstr(err->text, fragment))
        fail_msg("wants %s with \"%s\", got %s: %s", qrn_status_name(want), fragment,
                 qrn_status_name(got), err->text);
}

static struct qrn_model *open_toy(struct qrn_model_options o)
{
    struct qrn_error err;
    struct qrn_model *model = NULL;
    o.path = toy;
    o.device = dev;
    if (qrn_model_open(&o, &model, &err) != QRN_OK) fail_msg("%s", err.text);
    return model;
}

static enum qrn_status append(struct qrn_model *model, struct qrn_seq *seq, const int32_t *ids,
                              int64_t n, float *logits, struct qrn_error *err)
{
    struct qrn_append a = {.seq = seq,
                           .tokens = ids,
                           .n_tokens = n,
                           .want = logits ? QRN_LOGITS_LAST : QRN_LOGITS_NONE,
                           .logits = logits};
    return qrn_model_append(model, &a, 1, NULL, NULL, err);
}

static void test_open_errors(void **state)
{
    (void)state;
    struct qrn_error err;
    struct qrn_model *m;
    struct qrn_model_options o = {.path = toy};
    expect(qrn_model_open(&o, &m, &err), QRN_ERR_ARGUMENT, &err, "device is NULL");
    o.device = dev;
    o.path = NULL;
    expect(qrn_model_open(&o, &m, &err), QRN_ERR_ARGUMENT, &err, "path is NULL");
    o.path = "tests/there/is/none";
    expect(qrn_model_open(&o, &m, &err), QRN_ERR_IO, &err, "no such file");
    o.path = "tests/data";
    expect(qrn_model_open(&o, &m, &err), QRN_ERR_IO, &err, "config.json");
    o.path = "tests/data/fairy_reference.safetensors";
    expect(qrn_model_open(&o, &m, &err), QRN_ERR_FORMAT, &err, "");
    o.path = toy;
    o.max_batch = 5;
    expect(qrn_model_open(&o, &m, &err), QRN_ERR_ARGUMENT, &err,
           "max_batch is 5, wants 64 to 8192");
    o.max_batch = 0;
    o.max_context = -1;
    expect(qrn_model_open(&o, &m, &err), QRN_ERR_ARGUMENT, &err, "max_context is -1");
    o.max_context = 0;
    o.kv = (enum qrn_kv_type)9;
    expect(qrn_model_open(&o, &m, &err), QRN_ERR_ARGUMENT, &err, "kv is 9");
}

static bool stop_at_half(void *user, double done)
{
    *(double *)user = done;
    return done < 0.5;
}

static void test_progress_and_cancel_of_open(void **state)
{
    (void)state;
    struct qrn_error err;
    struct qrn_model *m = NULL;
    double done = 0.0;
    const struct qrn_model_options o = {
        .path = toy, .device = dev, .progress = stop_at_half, .progress_user = &done};
    expect(qrn_model_open(&o, &m, &err), QRN_ERR_CANCELLED, &err, "cancelled");
    assert_true(done >= 0.5 && done <= 1.0);
    assert_null(m);
}

static void keep_line(void *user, enum qrn_log_level level, const char *line)
{
    if (level == QRN_LOG_WARNING) (void)snprintf(user, 300, "%s", line);
}

/* A tokenizer of a kind we do not know costs the model only its text; a damaged one is an error. */
static void test_tokenizers(void **state)
{
    (void)state;
    static const char other[] = "{\"model\": {\"type\": \"Unigram\", \"vocab\": []}}";
    struct qrn_error err;
    struct qrn_model *m;
    char dir[512], path[600], line[300] = "";
    (void)snprintf(dir, sizeof dir, "%s", temp_path("toy3"));
    (void)mkdir(dir, 0700);
    toy_model_write(dir, TOY_DENSE);
    const struct qrn_model_options o = {
        .path = dir,
        .device = dev,
        .host.logger = {.write = keep_line, .user = line, .level = QRN_LOG_INFO}};
    assert_int_equal(qrn_model_open(&o, &m, &err), QRN_OK);
    assert_null(qrn_model_tokenizer(m));
    qrn_model_close(m);
    (void)snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    (void)fputs(other, f);
    assert_int_equal(fclose(f), 0);
    if (qrn_model_open(&o, &m, &err) != QRN_OK) fail_msg("%s", err.text);
    assert_null(qrn_model_tokenizer(m));
    qrn_model_close(m);
    if (!strstr(line, "tokenizer.json")) fail_msg("the log says \"%s\"", line);
    f = fopen(path, "w");
    assert_non_null(f);
    (void)fputs("{\"model\": 5", f);
    assert_int_equal(fclose(f), 0);
    expect(qrn_model_open(&o, &m, &err), QRN_ERR_FORMAT, &err, "tokenizer.json");
}

static void test_append_errors(void **state)
{
    (void)state;
    struct qrn_error err;
    struct qrn_model *model = open_toy((struct qrn_model_options){.max_context = 100});
    struct qrn_seq *seq = test_seq(model, 0), *other = test_seq(model, 0);
    const int64_t vocab_size = qrn_model_info(model)->vocab_size;
    float *logits = malloc((size_t)vocab_size * sizeof *logits);
    int32_t ids[120] = {1, 2, 3};
    expect(append(model, NULL, ids, 1, NULL, &err), QRN_ERR_ARGUMENT, &err,
           "append 0: seq is NULL");
    expect(append(model, seq, NULL, 1, NULL, &err), QRN_ERR_ARGUMENT, &err,
           "append 0: 1 tokens at NULL");
    expect(append(model, seq, ids, -1, NULL, &err), QRN_ERR_ARGUMENT, &err, "append 0: -1 tokens");
    ids[1] = 96;
    expect(append(model, seq, ids, 3, NULL, &err), QRN_ERR_ARGUMENT, &err,
           "tokens[1] is 96, wants 0 to 95");
    ids[1] = 2;
    expect(append(model, seq, ids, 101, NULL, &err), QRN_ERR_LIMIT, &err,
           "101 tokens after 0, the context holds 100");
    struct qrn_append twice[2] = {{.seq = seq, .tokens = ids, .n_tokens = 1},
                                  {.seq = seq, .tokens = ids, .n_tokens = 1}};
    expect(qrn_model_append(model, twice, 2, NULL, NULL, &err), QRN_ERR_ARGUMENT, &err,
           "append 1: the sequence is that of append 0");
    assert_int_equal(twice[0].status, QRN_OK); /* the first was taken all the same */
    assert_int_equal(qrn_seq_n_tokens(seq), 1);
    struct qrn_append no_room = {.seq = seq, .tokens = ids, .n_tokens = 1, .want = QRN_LOGITS_LAST};
    expect(qrn_model_append(model, &no_room, 1, NULL, NULL, &err), QRN_ERR_ARGUMENT, &err,
           "logits is NULL");
    assert_int_equal(append(model, seq, ids, 0, NULL, &err), QRN_OK);
    assert_int_equal(append(model, seq, ids, 99, logits, &err), QRN_OK);
    expect(append(model, seq, ids, 1, NULL, &err), QRN_ERR_LIMIT, &err, "the context holds 100");
    expect(qrn_seq_rollback(seq, -1, &err), QRN_ERR_ARGUMENT, &err, "rollback by -1");
    expect(qrn_seq_rollback(seq, 1, &err), QRN_ERR_STATE, &err, "only 0 are kept");
    const struct qrn_seq_options bad = {.max_rollback = 65};
    struct qrn_seq *none;
    expect(qrn_seq_create(model, &bad, &none, &err), QRN_ERR_ARGUMENT, &err, "max_rollback is 65");
    free(logits);
    qrn_seq_destroy(other);
    qrn_seq_destroy(seq);
    qrn_model_close(model);
}

static void test_one_bad_sequence_does_not_disturb(void **state)
{
    (void)state;
    struct qrn_error err;
    struct qrn_model *model = open_toy((struct qrn_model_options){0});
    const int64_t vocab_size = qrn_model_info(model)->vocab_size;
    const int32_t good[] = {5, 6, 7}, bad[] = {5, -6, 7};
    float *want = malloc((size_t)vocab_size * sizeof *want),
          *got = malloc((size_t)vocab_size * sizeof *got);
    struct qrn_seq *alone = test_seq(model, 0), *one = test_seq(model, 0),
                   *two = test_seq(model, 0);
    assert_int_equal(append(model, alone, good, 3, want, &err), QRN_OK);
    struct qrn_append a[2] = {
        {.seq = one, .tokens = bad, .n_tokens = 3},
        {.seq = two, .tokens = good, .n_tokens = 3, .want = QRN_LOGITS_LAST, .logits = got}};
    expect(qrn_model_append(model, a, 2, NULL, NULL, &err), QRN_ERR_ARGUMENT, &err,
           "tokens[1] is -6");
    assert_int_equal(a[0].status, QRN_ERR_ARGUMENT);
    assert_int_equal(a[1].status, QRN_OK);
    assert_int_equal(qrn_seq_n_tokens(one), 0);
    assert_memory_equal(want, got, (size_t)vocab_size * sizeof *want);
    qrn_seq_destroy(alone);
    qrn_seq_destroy(one);
    qrn_seq_destroy(two);
    free(want);
    free(got);
    qrn_model_close(model);
}

static bool cancel_at(void *user)
{
    return --*(int *)user < 0;
}

/* Cancelled at every layer of several batches: what was taken is a prefix, and goes on unharmed. */
static void test_cancel(void **state)
{
    (void)state;
    enum { N = 200 };
    struct qrn_error err;
    struct qrn_model *model = open_toy((struct qrn_model_options){.max_batch = 64});
    const size_t vocab_size = (size_t)qrn_model_info(model)->vocab_size;
    int32_t ids[N];
    for (int i = 0; i < N; i++) ids[i] = (i * 37 + 11) % 96;
    struct qrn_seq *whole = test_seq(model, 0);
    float *want = test_append_all(model, whole, ids, N, 0);
    for (int countdown = 0; countdown < 14; countdown++) {
        int left = countdown;
        struct qrn_seq *seq = test_seq(model, countdown % 2 ? 10 : 0);
        struct qrn_append a = {.seq = seq, .tokens = ids, .n_tokens = N};
        const enum qrn_status s = qrn_model_append(model, &a, 1, cancel_at, &left, &err);
        if (countdown < 10) { /* 3 batches of 3 layers, asked about at each; one of 8 tokens, at once */
            expect(s, QRN_ERR_CANCELLED, &err, "cancelled");
            assert_int_equal(a.status, QRN_ERR_CANCELLED);
            assert_int_equal(a.n_done, countdown / 3 * 64);
        } else {
            assert_int_equal(s, QRN_OK);
        }
        assert_int_equal(qrn_seq_n_tokens(seq), a.n_done);
        if (a.n_done < N) {
            float *rest = test_append_all(model, seq, ids + a.n_done, N - a.n_done, 7);
            assert_memory_equal(rest, want + (size_t)a.n_done * vocab_size,
                                (size_t)(N - a.n_done) * vocab_size * sizeof *rest);
            free(rest);
        }
        qrn_seq_destroy(seq);
    }
    free(want);
    qrn_seq_destroy(whole);
    qrn_model_close(model);
}

/* Decoding allocates where a chunk of 64 tokens begins or ends, and nowhere else. */
static void test_no_allocation_per_token(void **state)
{
    (void)state;
    enum { N_SEQS = 3, N_STEPS = 100 };
    struct counting_allocator counting;
    struct qrn_error err;
    counting_allocator_init(&counting);
    struct qrn_device *own;
    const struct qrn_device_options device_options = {.n_threads = 2,
                                                      .host = counting_host(&counting)};
    if (qrn_device_open(&device_options, &own, &err) != QRN_OK) fail_msg("%s", err.text);
    struct qrn_model *model = NULL;
    const struct qrn_model_options o = {
        .path = toy, .device = own, .host = counting_host(&counting)};
    if (qrn_model_open(&o, &model, &err) != QRN_OK) fail_msg("%s", err.text);
    const int64_t vocab_size = qrn_model_info(model)->vocab_size;
    float *logits = malloc(sizeof *logits * (size_t)(N_SEQS * vocab_size));
    struct qrn_append a[N_SEQS];
    int32_t ids[N_SEQS];
    for (int i = 0; i < N_SEQS; i++) {
        ids[i] = i;
        a[i] = (struct qrn_append){.seq = test_seq(model, 0),
                                   .tokens = &ids[i],
                                   .n_tokens = 1,
                                   .want = QRN_LOGITS_LAST,
                                   .logits = logits + i * vocab_size};
    }
    for (int step = 0; step < N_STEPS; step++) {
        const size_t before = counting.n_calls;
        if (qrn_model_append(model, a, N_SEQS, NULL, NULL, &err) != QRN_OK)
            fail_msg("%s", err.text);
        if (step % 64 > 0 && step % 64 < 63 && counting.n_calls != before)
            fail_msg("step %d allocates %zu times", step, counting.n_calls - before);
        for (int i = 0; i < N_SEQS; i++) ids[i] = (ids[i] * 5 + 7) % 96;
    }
    for (int i = 0; i < N_SEQS; i++) qrn_seq_destroy(a[i].seq);
    free(logits);
    qrn_model_close(model);
    qrn_device_close(own);
    assert_int_equal(counting.live_blocks, 0);
}

/* The budget holds, says its numbers, and memory comes back. */
static void test_budget(void **state)
{
    (void)state;
    struct qrn_error err;
    const size_t budget = 400000;
    struct qrn_model *model = open_toy((struct qrn_model_options){.budget_bytes = budget});
    struct qrn_seq *seqs[64];
    const int32_t ids[] = {1, 2, 3};
    size_t n = 0;
    enum qrn_status s = QRN_OK;
    while (n < 64 && s == QRN_OK) {
        const size_t i = n;
        s = qrn_seq_create(model, NULL, &seqs[i], &err);
        if (s != QRN_OK) break;
        n++;
        s = append(model, seqs[i], ids, 3, NULL, &err);
    }
    expect(s, QRN_ERR_LIMIT, &err, "of a budget of 400000 are in use");
    assert_true(n > 1);
    assert_true(qrn_model_memory(model).in_use_bytes <= budget);
    assert_true(qrn_model_memory(model).peak_bytes <= budget);
    for (size_t i = 0; i < n; i++) qrn_seq_destroy(seqs[i]);
    assert_int_equal(qrn_model_memory(model).in_use_bytes, 0);
    seqs[0] = test_seq(model, 0);
    assert_int_equal(append(model, seqs[0], ids, 3, NULL, &err), QRN_OK);
    qrn_seq_destroy(seqs[0]);
    qrn_model_close(model);
}

/* A fork costs nothing until it writes, and then only what it writes. */
static void test_fork_shares(void **state)
{
    (void)state;
    struct qrn_error err;
    struct qrn_model *model = open_toy((struct qrn_model_options){0});
    struct qrn_seq *seq = test_seq(model, 0), *fork;
    int32_t ids[200];
    for (int i = 0; i < 200; i++) ids[i] = i % 96;
    assert_int_equal(append(model, seq, ids, 200, NULL, &err), QRN_OK);
    const size_t before = qrn_model_memory(model).in_use_bytes;
    assert_int_equal(qrn_seq_fork(seq, &fork, &err), QRN_OK);
    assert_int_equal(qrn_model_memory(model).in_use_bytes, before);
    assert_int_equal(append(model, fork, ids, 1, NULL, &err), QRN_OK);
    const struct qrn_model_info *info = qrn_model_info(model);
    const size_t grown = qrn_model_memory(model).in_use_bytes - before;
    assert_true(grown < info->rows_bytes * 2 + 80 * info->kv_bytes_per_token +
                            16 * info->history_bytes_per_row);
    qrn_seq_destroy(fork);
    assert_int_equal(qrn_model_memory(model).in_use_bytes, before);
    qrn_seq_destroy(seq);
    qrn_model_close(model);
}

/* Logits of 200 tokens, and of 70 more on a fork, one by one: over edges, shared rows and several chunks at once. */
static float *logits_over_edges(struct qrn_model *model)
{
    enum { FIRST = 200, THEN = 70, VOCAB = 96 };
    struct qrn_error err;
    struct qrn_seq *seq = test_seq(model, 0), *fork;
    int32_t ids[FIRST];
    for (int i = 0; i < FIRST; i++) ids[i] = i % VOCAB;
    float *first = test_append_all(model, seq, ids, FIRST, 0);
    assert_int_equal(qrn_seq_fork(seq, &fork, &err), QRN_OK);
    float *then = test_append_all(model, fork, ids, THEN, 1),
          *all = malloc(sizeof(float) * (FIRST + THEN) * VOCAB);
    assert_non_null(all);
    memcpy(all, first, sizeof(float) * FIRST * VOCAB);
    memcpy(all + FIRST * VOCAB, then, sizeof(float) * THEN * VOCAB);
    free(first);
    free(then);
    qrn_seq_destroy(fork);
    qrn_seq_destroy(seq);
    return all;
}

/* What the pool keeps of a size becomes NaN. */
static void spoil(struct qrn_model *model, size_t n_bytes)
{
    enum { MOST = 4 };
    struct qrn_error err;
    struct qrn_buffer *b[MOST];
    for (int i = 0; i < MOST; i++) {
        assert_int_equal(
            qrn_pool_acquire_on(model->pool, dev, n_bytes, QRN_POOL_ANYTHING, &b[i], &err), QRN_OK);
        memset(qrn_buffer_data(b[i]), 0xff, n_bytes);
    }
    for (int i = 0; i < MOST; i++) qrn_buffer_release(b[i]);
}

/* Memory that was another's and is not zeroed is written before it is read. */
static void test_memory_of_others(void **state)
{
    (void)state;
    struct qrn_model *model = open_toy((struct qrn_model_options){0});
    float *want = logits_over_edges(model);
    spoil(model, model->stages[0].sizes.state);
    spoil(model, model->stages[0].sizes.rows);
    spoil(model, model->stages[0].sizes.page);
    float *got = logits_over_edges(model);
    assert_memory_equal(got, want, sizeof(float) * 270 * 96);
    free(got);
    free(want);
    qrn_model_close(model);
}

static void write_file(const char *path, const char *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void damage(const char *path, size_t at, const char *good, size_t n)
{
    char *copy = malloc(n);
    assert_non_null(copy);
    memcpy(copy, good, n);
    if (at < n) copy[at] ^= 0x40;
    write_file(path, copy, at < n ? n : n - 5);
    free(copy);
}

/* Any byte changed, or the end missing: an error, never a sequence. */
static void test_damaged_file(void **state)
{
    (void)state;
    struct qrn_error err;
    struct qrn_model *model = open_toy((struct qrn_model_options){0});
    struct qrn_seq *seq = test_seq(model, 3), *loaded = NULL;
    const int32_t ids[] = {1, 2, 3, 4, 5};
    char path[512];
    size_t n;
    (void)snprintf(path, sizeof path, "%s", temp_path("seq"));
    assert_int_equal(append(model, seq, ids, 5, NULL, &err), QRN_OK);
    assert_int_equal(qrn_seq_save(seq, path, &err), QRN_OK);
    char *good = read_file(path, &n);
    assert_non_null(good);
    for (size_t at = 0; at < n + 1; at += at < 400 ? 1 : 997) {
        damage(path, at < n ? at : n, good, n);
        const enum qrn_status s = qrn_seq_load(model, path, 0, &loaded, &err);
        if (s != QRN_ERR_FORMAT && s != QRN_ERR_MISMATCH && s != QRN_ERR_LIMIT)
            fail_msg("byte %zu changed: %s", at, qrn_status_name(s));
    }
    damage(path, n, good, n);
    assert_int_equal(qrn_seq_load(model, path, 0, &loaded, &err), QRN_ERR_FORMAT);
    expect(qrn_seq_load(model, "tests/there/is/none", 0, &loaded, &err), QRN_ERR_IO, &err, "none");
    free(good);
    qrn_seq_destroy(seq);
    qrn_model_close(model);
}

/* Files of other versions have other rows: they are refused by name. */
static void test_other_version(void **state)
{
    (void)state;
    struct qrn_error err;
    struct qrn_model *model = open_toy((struct qrn_model_options){0});
    struct qrn_seq *seq = test_seq(model, 0), *loaded = NULL;
    const int32_t ids[] = {4, 5, 6};
    char path[512];
    size_t n;
    (void)snprintf(path, sizeof path, "%s", temp_path("seq3"));
    assert_int_equal(append(model, seq, ids, 3, NULL, &err), QRN_OK);
    assert_int_equal(qrn_seq_save(seq, path, &err), QRN_OK);
    char *good = read_file(path, &n);
    assert_non_null(good);
    assert_memory_equal(good, "QRNSEQ02", 8);
    memcpy(good + 6, "01", 2);
    write_file(path, good, n);
    expect(qrn_seq_load(model, path, QRN_LOAD_ANY_BITS, &loaded, &err), QRN_ERR_MISMATCH, &err,
           "version 01, wants 02");
    memcpy(good + 6, "99", 2);
    write_file(path, good, n);
    expect(qrn_seq_load(model, path, QRN_LOAD_ANY_BITS, &loaded, &err), QRN_ERR_MISMATCH, &err,
           "version 99");
    memcpy(good + 6, "/2", 2);
    write_file(path, good, n);
    expect(qrn_seq_load(model, path, QRN_LOAD_ANY_BITS, &loaded, &err), QRN_ERR_FORMAT, &err,
           "not a file of a sequence");
    free(good);
    qrn_seq_destroy(seq);
    qrn_model_close(model);
}

/* A file of another model or bits id is refused; the second can be waived. */
static void test_mismatch(void **state)
{
    (void)state;
    struct qrn_error err;
    struct qrn_model *exact = open_toy((struct qrn_model_options){.exact = true, .kv = QRN_KV_F16}),
                     *rounded = open_toy((struct qrn_model_options){0}),
                     *wide = open_toy((struct qrn_model_options){.kv = QRN_KV_F32}), *other;
    struct qrn_seq *seq = test_seq(exact, 0), *loaded = NULL;
    const int32_t ids[] = {9, 8, 7};
    char path[512], dense[512];
    (void)snprintf(path, sizeof path, "%s", temp_path("seq2"));
    assert_int_equal(append(exact, seq, ids, 3, NULL, &err), QRN_OK);
    assert_int_equal(qrn_seq_save(seq, path, &err), QRN_OK);
    expect(qrn_seq_load(rounded, path, 0, &loaded, &err), QRN_ERR_MISMATCH, &err, "bits id");
    assert_int_equal(qrn_seq_load(rounded, path, QRN_LOAD_ANY_BITS, &loaded, &err), QRN_OK);
    assert_int_equal(qrn_seq_n_tokens(loaded), 3);
    qrn_seq_destroy(loaded);
    expect(qrn_seq_load(wide, path, QRN_LOAD_ANY_BITS, &loaded, &err), QRN_ERR_MISMATCH, &err,
           "cache");
    (void)snprintf(dense, sizeof dense, "%s", temp_path("dense"));
    (void)mkdir(dense, 0700);
    toy_model_write(dense, TOY_DENSE);
    other = test_model(dev, dense, true, QRN_KV_F16);
    expect(qrn_seq_load(other, path, QRN_LOAD_ANY_BITS, &loaded, &err), QRN_ERR_MISMATCH, &err,
           "another model");
    qrn_seq_destroy(seq);
    qrn_model_close(other);
    qrn_model_close(wide);
    qrn_model_close(rounded);
    qrn_model_close(exact);
}

/* Without weights: the same description, and no sequences. */
static void test_only_info(void **state)
{
    (void)state;
    struct qrn_model *whole = test_model(dev, "models/fairy", false, QRN_KV_DEFAULT), *model;
    const struct qrn_model_options options = {
        .path = "models/fairy", .device = dev, .only_info = true};
    struct qrn_error err;
    struct qrn_seq *seq = NULL;
    if (qrn_model_open(&options, &model, &err) != QRN_OK) fail_msg("%s", err.text);
    struct qrn_model_info a = *qrn_model_info(whole), b = *qrn_model_info(model);
    assert_string_equal(a.bits, b.bits);
    a.bits = b.bits = NULL;
    assert_memory_equal(&a, &b, sizeof a);
    assert_non_null(qrn_model_tokenizer(model));
    assert_int_equal(qrn_seq_create(model, NULL, &seq, &err), QRN_ERR_STATE);
    assert_null(seq);
    assert_non_null(strstr(err.text, "without its weights"));
    qrn_model_close(model);
    qrn_model_close(whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open_errors),
        cmocka_unit_test(test_progress_and_cancel_of_open),
        cmocka_unit_test(test_tokenizers),
        cmocka_unit_test(test_append_errors),
        cmocka_unit_test(test_one_bad_sequence_does_not_disturb),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_no_allocation_per_token),
        cmocka_unit_test(test_budget),
        cmocka_unit_test(test_fork_shares),
        cmocka_unit_test(test_memory_of_others),
        cmocka_unit_test(test_damaged_file),
        cmocka_unit_test(test_only_info),
        cmocka_unit_test(test_other_version),
        cmocka_unit_test(test_mismatch),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
