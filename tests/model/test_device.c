/* SPDX-License-Identifier: MIT
 * Models on devices whose memory the host does not reach: a far one with the CPU's kernels, where all is
 * as on the CPU, bit for bit; and a GPU, real or emulated, where it is close. */
#include <quern/quantize.h>

#include "support/model_test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "support/emulated_faults.h"
#include "support/far_device.h"
#include "support/op_test.h"
#include "support/sanitized.h"
#include "support/shared.h"
#include "support/temp.h"
#include "support/toy_model.h"

enum { N = 210 }; /* tokens of the sequence that all is compared with */

struct fixture {
    const char *path;
    bool exact, exact_batch;
    int64_t max_batch; /* 0: 128 */
    double allowed; /* largest difference of a logit from the CPU's; 0: the same bits */
    struct qrn_device *cpu, *dev;
    struct qrn_model *near, *model; /* on the CPU, on the device */
    int32_t ids[N];
    int64_t vocab_size, n_layers, d_model;
    float *want; /* [N][vocab_size] */
};

static struct qrn_model *open_on(const struct fixture *f, struct qrn_device *dev, bool direct,
                                 struct qrn_error *err)
{
    struct qrn_model *model = NULL;
    const struct qrn_model_options o = {.path = f->path,
                                        .device = dev,
                                        .exact = f->exact,
                                        .exact_batch = f->exact_batch,
                                        .direct = direct,
                                        .max_batch = f->max_batch ? f->max_batch : 128};
    return qrn_model_open(&o, &model, err) == QRN_OK ? model : NULL;
}

/* False where the device lacks kernels. */
static bool fixture_open_batch(struct fixture *f, const char *path, bool exact, bool exact_batch,
                               struct qrn_device *dev, double allowed)
{
    struct qrn_error err;
    struct rng r = {2026};
    *f = (struct fixture){.path = path,
                          .exact = exact,
                          .exact_batch = exact_batch,
                          .allowed = allowed,
                          .cpu = test_device(1),
                          .dev = dev};
    f->model = open_on(f, dev, false, &err);
    if (!f->model) {
        if (err.status != QRN_ERR_UNSUPPORTED || allowed == 0.0) fail_msg("%s", err.text);
        print_message("%s: %s\n", path, err.text);
        qrn_device_close(f->cpu);
        return false;
    }
    f->near = open_on(f, f->cpu, false, &err);
    if (!f->near) fail_msg("%s", err.text);
    f->vocab_size = qrn_model_info(f->model)->vocab_size;
    f->n_layers = qrn_model_info(f->model)->n_layers;
    f->d_model = qrn_model_info(f->model)->d_model;
    for (int i = 0; i < N; i++) f->ids[i] = (int32_t)rng_below(&r, f->vocab_size);
    struct qrn_seq *seq = test_seq(f->near, 0);
    f->want = test_append_all(f->near, seq, f->ids, N, 0);
    qrn_seq_destroy(seq);
    return true;
}

static bool fixture_open(struct fixture *f, const char *path, bool exact, struct qrn_device *dev,
                         double allowed)
{
    return fixture_open_batch(f, path, exact, false, dev, allowed);
}

static void fixture_close(struct fixture *f)
{
    free(f->want);
    qrn_model_close(f->model);
    qrn_model_close(f->near);
    qrn_device_close(f->cpu);
}

static void close_enough(const struct fixture *f, const float *got, const float *want, int64_t n,
                         const char *what)
{
    if (f->allowed == 0.0 && memcmp(got, want, (size_t)n * sizeof *got) != 0)
        fail_msg("%s: %s: other bits", f->path, what);
    const double worst = test_max_difference(got, want, n);
    if (!(worst <= f->allowed))
        fail_msg("%s: %s: %g from the CPU, %g allowed", f->path, what, worst, f->allowed);
}

/* Appends ids first .. first + n - 1 in cuts and compares. */
static void continues(const struct fixture *f, struct qrn_model *model, struct qrn_seq *seq,
                      int64_t first, int64_t n, int64_t cut, const char *what)
{
    assert_int_equal(qrn_seq_n_tokens(seq), first);
    float *got = test_append_all(model, seq, f->ids + first, n, cut);
    close_enough(f, got, f->want + first * f->vocab_size, n * f->vocab_size, what);
    free(got);
}

static void check_cuts(const struct fixture *f)
{
    static const int64_t cuts[] = {0, 7, 65};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        struct qrn_seq *seq = test_seq(f->model, 0);
        continues(f, f->model, seq, 0, N - 4, cuts[i], "in cuts");
        continues(f, f->model, seq, N - 4, 4, 1, "one by one");
        qrn_seq_destroy(seq);
    }
}

/* The same calls give the same bits, on any device. */
static void check_twice(const struct fixture *f)
{
    float *got[2];
    for (int i = 0; i < 2; i++) {
        struct qrn_seq *seq = test_seq(f->model, 0);
        got[i] = test_append_all(f->model, seq, f->ids, 150, 70);
        qrn_seq_destroy(seq);
    }
    if (memcmp(got[0], got[1], (size_t)(150 * f->vocab_size) * sizeof(float)) != 0)
        fail_msg("%s: the second time the bits are others", f->path);
    free(got[0]);
    free(got[1]);
}

static void check_direct(const struct fixture *f)
{
    struct qrn_error err;
    struct qrn_model *model = open_on(f, f->dev, true, &err);
    if (!model) fail_msg("%s", err.text);
    struct qrn_seq *seq = test_seq(model, 0);
    continues(f, model, seq, 0, 70, 0, "op by op");
    continues(f, model, seq, 70, 2, 1, "op by op");
    qrn_seq_destroy(seq);
    qrn_model_close(model);
}

static void check_batch(const struct fixture *f)
{
    static const int64_t at[] = {0, 62, 64, 127}, takes[] = {1, 3, 64, 65};
    struct qrn_append a[4];
    struct qrn_error err;
    for (int i = 0; i < 4; i++) {
        struct qrn_seq *seq = test_seq(f->model, i == 2 ? 16 : 0);
        free(test_append_all(f->model, seq, f->ids, at[i], 0));
        a[i] = (struct qrn_append){.seq = seq,
                                   .tokens = f->ids + at[i],
                                   .n_tokens = takes[i],
                                   .want = i == 1 ? QRN_LOGITS_LAST : QRN_LOGITS_ALL,
                                   .logits =
                                       malloc((size_t)(takes[i] * f->vocab_size) * sizeof(float))};
    }
    if (qrn_model_append(f->model, a, 4, NULL, NULL, &err) != QRN_OK) fail_msg("%s", err.text);
    for (int i = 0; i < 4; i++) {
        const int64_t skipped = i == 1 ? takes[i] - 1 : 0;
        close_enough(f, a[i].logits, f->want + (at[i] + skipped) * f->vocab_size,
                     (takes[i] - skipped) * f->vocab_size, "in a batch");
        free(a[i].logits);
        continues(f, f->model, a[i].seq, at[i] + takes[i], 3, 1, "after a batch");
        qrn_seq_destroy(a[i].seq);
    }
}

static void check_rollback(const struct fixture *f)
{
    static const int64_t stops[] = {100, 128, 130}, backs[] = {1, 5, 64};
    struct qrn_error err;
    for (size_t i = 0; i < sizeof stops / sizeof *stops; i++) {
        struct qrn_seq *seq = test_seq(f->model, 64);
        free(test_append_all(f->model, seq, f->ids, stops[i] - backs[i], 0));
        free(test_append_all(f->model, seq, f->ids + 120, backs[i], i % 2 ? 9 : 0)); /* astray */
        if (qrn_seq_rollback(seq, backs[i], &err) != QRN_OK) fail_msg("%s", err.text);
        continues(f, f->model, seq, stops[i] - backs[i], 6, (int64_t)i, "after a rollback");
        qrn_seq_destroy(seq);
    }
}

static void check_fork_and_snapshot(const struct fixture *f)
{
    static const int64_t at[] = {1, 64, 100};
    struct qrn_error err;
    struct qrn_seq *seq = test_seq(f->model, 8);
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        struct qrn_seq *fork = NULL, *astray = NULL;
        struct qrn_snapshot *snapshot = NULL;
        const int64_t n = qrn_seq_n_tokens(seq);
        continues(f, f->model, seq, n, at[i] - n, 0, "before a fork");
        assert_int_equal(qrn_seq_fork(seq, &fork, &err), QRN_OK);
        assert_int_equal(qrn_seq_fork(fork, &astray, &err), QRN_OK);
        assert_int_equal(qrn_snapshot_take(seq, &snapshot, &err), QRN_OK);
        free(test_append_all(f->model, astray, f->ids + 90, 70, 0));
        continues(f, f->model, fork, at[i], 80, 0, "a fork");
        qrn_seq_destroy(astray);
        qrn_seq_destroy(fork);
        assert_int_equal(qrn_snapshot_restore(snapshot, &fork, &err), QRN_OK);
        continues(f, f->model, fork, at[i], 3, 1, "restored");
        qrn_seq_destroy(fork);
        qrn_snapshot_free(snapshot);
    }
    qrn_seq_destroy(seq);
}

static void check_file(const struct fixture *f)
{
    struct qrn_error err;
    struct qrn_seq *seq = test_seq(f->model, 20), *loaded = NULL;
    char file[512];
    (void)snprintf(file, sizeof file, "%s", temp_path("device.qrnseq"));
    continues(f, f->model, seq, 0, 130, 0, "before saving");
    if (qrn_seq_save(seq, file, &err) != QRN_OK) fail_msg("%s", err.text);
    if (qrn_seq_load(f->model, file, 0, &loaded, &err) != QRN_OK) fail_msg("%s", err.text);
    assert_int_equal(qrn_seq_rollback(loaded, 10, &err), QRN_OK);
    continues(f, f->model, loaded, 120, 15, 0, "loaded and rolled back");
    qrn_seq_destroy(loaded);
    loaded = NULL;
    /* another device is another bits id, and the sequence can be taken there if that is wanted */
    if (strcmp(qrn_model_bits(f->near), qrn_model_bits(f->model)) != 0)
        assert_int_equal(qrn_seq_load(f->near, file, 0, &loaded, &err), QRN_ERR_MISMATCH);
    if (qrn_seq_load(f->near, file, QRN_LOAD_ANY_BITS, &loaded, &err) != QRN_OK)
        fail_msg("%s", err.text);
    continues(f, f->near, loaded, 130, 5, 0, "taken to the CPU");
    qrn_seq_destroy(loaded);
    qrn_seq_destroy(seq);
}

static float *hidden_of(struct qrn_model *model, const struct fixture *f, int64_t n)
{
    struct qrn_error err;
    struct qrn_seq *seq = test_seq(model, 0);
    float *hidden = malloc((size_t)((f->n_layers + 1) * n * f->d_model) * sizeof *hidden);
    struct qrn_append a = {.seq = seq, .tokens = f->ids, .n_tokens = n, .hidden = hidden};
    if (qrn_model_append(model, &a, 1, NULL, NULL, &err) != QRN_OK) fail_msg("%s", err.text);
    qrn_seq_destroy(seq);
    return hidden;
}

static void check_hidden(const struct fixture *f)
{
    enum { MANY = 140 };
    float *got = hidden_of(f->model, f, MANY), *want = hidden_of(f->near, f, MANY);
    close_enough(f, got, want, (f->n_layers + 1) * MANY * f->d_model, "hidden states");
    free(got);
    free(want);
}

static bool count_down(void *user)
{
    return (*(int *)user)-- == 0;
}

/* Cancelled between batches, whose layers are queued together; what was done stays, and the sequence goes on. */
static void check_cancel(const struct fixture *f)
{
    struct qrn_error err;
    struct qrn_seq *seq = test_seq(f->model, 0);
    int left = 1; /* in the second batch of 128 */
    struct qrn_append a = {.seq = seq, .tokens = f->ids, .n_tokens = 200};
    assert_int_equal(qrn_model_append(f->model, &a, 1, count_down, &left, &err), QRN_ERR_CANCELLED);
    assert_int_equal(a.n_done, 128);
    continues(f, f->model, seq, 128, 40, 0, "after a step that was cancelled");
    qrn_seq_destroy(seq);
}

static void check_all(const char *path, bool exact, struct qrn_device *dev, double allowed)
{
    struct fixture f;
    if (!fixture_open(&f, path, exact, dev, allowed)) return;
    check_cuts(&f);
    check_twice(&f);
    check_direct(&f);
    check_batch(&f);
    check_rollback(&f);
    check_fork_and_snapshot(&f);
    check_file(&f);
    check_hidden(&f);
    check_cancel(&f);
    fixture_close(&f);
}

/* Op by op, without joints, the bits of a recording: of few tokens, and of one after the other. */
static void check_recorded_bits(const struct fixture *f)
{
    struct qrn_error err;
    float *got[2];
    for (int i = 0; i < 2; i++) {
        struct qrn_model *model = open_on(f, f->dev, i == 1, &err);
        if (!model) fail_msg("%s", err.text);
        struct qrn_seq *seq = test_seq(model, 0);
        free(test_append_all(model, seq, f->ids, 5, 0));
        got[i] = test_append_all(model, seq, f->ids + 5, 3, 1);
        qrn_seq_destroy(seq);
        qrn_model_close(model);
    }
    if (memcmp(got[0], got[1], (size_t)(3 * f->vocab_size) * sizeof(float)) != 0)
        fail_msg("%s: op by op the bits are others", f->path);
    free(got[0]);
    free(got[1]);
}

/* The same on an emulated GPU, which takes a tenth of a second for a token: over an edge, one by one,
 * twice, forked and rolled back, beside another sequence, through a file. */
static void check_some(const char *path, struct qrn_device *dev, double allowed)
{
    enum { FIRST = 65, THEN = 3 };
    struct fixture f;
    struct qrn_error err;
    struct qrn_seq *seq[2], *fork = NULL, *loaded = NULL;
    float *got[2];
    char file[512];
    if (!fixture_open(&f, path, true, dev, allowed)) return;
    (void)snprintf(file, sizeof file, "%s", temp_path("some.qrnseq"));
    check_recorded_bits(&f);
    for (int i = 0; i < 2; i++) {
        seq[i] = test_seq(f.model, 8);
        free(test_append_all(f.model, seq[i], f.ids, FIRST, 0));
        got[i] = test_append_all(f.model, seq[i], f.ids + FIRST, THEN, 1);
        close_enough(&f, got[i], f.want + FIRST * f.vocab_size, THEN * f.vocab_size, "one by one");
    }
    if (memcmp(got[0], got[1], (size_t)(THEN * f.vocab_size) * sizeof(float)) != 0)
        fail_msg("%s: the second time the bits are others", path);
    assert_int_equal(qrn_seq_fork(seq[0], &fork, &err), QRN_OK);
    free(test_append_all(f.model, fork, f.ids, 1, 0));           /* astray */
    assert_int_equal(qrn_seq_rollback(seq[0], 6, &err), QRN_OK); /* over the edge */
    struct qrn_append a[2];
    for (int i = 0; i < 2; i++)
        a[i] = (struct qrn_append){.seq = seq[i],
                                   .tokens = f.ids + qrn_seq_n_tokens(seq[i]),
                                   .n_tokens = i ? 1 : 3,
                                   .want = QRN_LOGITS_LAST,
                                   .logits = got[i]};
    if (qrn_model_append(f.model, a, 2, NULL, NULL, &err) != QRN_OK) fail_msg("%s", err.text);
    for (int i = 0; i < 2; i++)
        close_enough(&f, got[i], f.want + (qrn_seq_n_tokens(seq[i]) - 1) * f.vocab_size,
                     f.vocab_size, i ? "beside another" : "rolled back");
    if (qrn_seq_save(seq[1], file, &err) != QRN_OK ||
        qrn_seq_load(f.model, file, 0, &loaded, &err) != QRN_OK)
        fail_msg("%s", err.text);
    continues(&f, f.model, loaded, FIRST + THEN + 1, 1, 0, "from a file");
    for (int i = 0; i < 2; i++) {
        free(got[i]);
        qrn_seq_destroy(seq[i]);
    }
    qrn_seq_destroy(fork);
    qrn_seq_destroy(loaded);
    fixture_close(&f);
}

static const size_t plenty = (size_t)1 << 40;

static void test_far(void **state)
{
    (void)state;
    for (enum toy_kind kind = TOY_DENSE; kind < TOY_KINDS; kind++)
        for (int exact = 0; exact < (SANITIZED ? 1 : 2); exact++) {
            struct qrn_device *dev = far_device_open(kind == TOY_MOE ? 2 : 1, plenty);
            check_all(toy_model_make(kind), exact != 0, dev, 0.0);
            far_device_close(dev);
        }
}

/* The same where the system pins no memory. */
static void test_far_unshared(void **state)
{
    (void)state;
    struct qrn_device *dev = far_device_open(1, plenty);
    far_device_share_nothing();
    check_all(toy_model_make(TOY_DENSE), false, dev, 0.0);
    far_device_close(dev);
}

/* Weights of every way to lie in files: packed in pieces, in rows, with scales. */
/* Gates of bf16 are one product with what lies before them, of x that is rounded to bf16, where tokens are many: near, but
 * not the CPU's bits. */
static void check_joined_gates(const struct fixture *f, const char *path)
{
    enum { MANY = 40 };
    struct qrn_error err;
    const struct fixture many = {.path = path};
    struct qrn_model *model = open_on(&many, f->dev, false, &err);
    if (!model) fail_msg("%s", err.text);
    struct qrn_seq *seq = test_seq(model, 0);
    float *got = test_append_all(model, seq, f->ids, MANY, 0);
    const double worst = test_max_difference(got, f->want, MANY * f->vocab_size);
    if (!(worst > 0.0 && worst <= 0.05)) fail_msg("%s: %g from the CPU", path, worst);
    free(got);
    qrn_seq_destroy(seq);
    qrn_model_close(model);
}

static void test_far_files(void **state)
{
    static const struct {
        const char *path;
        bool joins_gates;
    } models[] = {{"models/gguf/fairy-Q4_K_M.gguf", false},
                  {"models/fairy-mlx-6bit", false},
                  {"models/next_small", true},
                  {"models/gguf/moe_small-Q4_K_M.gguf", false}};
    (void)state;
    if (SANITIZED || !shared_path("models")) skip();
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct fixture f;
        char path[1024];
        (void)snprintf(path, sizeof path, "%s", shared_path(models[i].path));
        struct qrn_device *dev = far_device_open(1, plenty);
        assert_true(fixture_open_batch(&f, path, false, models[i].joins_gates, dev, 0.0));
        struct qrn_seq *seq = test_seq(f.model, 0);
        continues(&f, f.model, seq, 0, 70, 0, "a prompt");
        continues(&f, f.model, seq, 70, 3, 1, "one by one");
        if (models[i].joins_gates) check_joined_gates(&f, path);
        qrn_seq_destroy(seq);
        fixture_close(&f);
        far_device_close(dev);
    }
}

/* A step brings its tables in one copy and its logits back in another, and waits for nothing else. */
static void test_traffic(void **state)
{
    (void)state;
    struct fixture f;
    struct qrn_error err;
    struct qrn_device *dev = far_device_open(1, plenty);
    assert_true(fixture_open(&f, toy_model_make(TOY_MOE), false, dev, 0.0));
    struct qrn_seq *seq = test_seq(f.model, 0);
    float *logits = malloc((size_t)f.vocab_size * sizeof *logits);
    for (int i = 0; i < 70; i++) {
        struct qrn_append a = {.seq = seq,
                               .tokens = f.ids + i,
                               .n_tokens = 1,
                               .want = QRN_LOGITS_LAST,
                               .logits = logits};
        const struct far_counts before = far_device_counts();
        if (qrn_model_append(f.model, &a, 1, NULL, NULL, &err) != QRN_OK) fail_msg("%s", err.text);
        const struct far_counts after = far_device_counts();
        assert_int_equal(after.uploads - before.uploads, 1);
        assert_int_equal(after.reads - before.reads, 1);
        assert_int_equal(after.writes - before.writes, 0);
        assert_int_equal(after.submits - before.submits, 1); /* the layers and the head */
    }
    free(logits);
    qrn_seq_destroy(seq);
    fixture_close(&f);
    far_device_close(dev);
}

static bool stop_at_half(void *user, double done)
{
    *(double *)user = done;
    return done < 0.5;
}

/* A model that does not fit is refused with numbers; opening it can be cancelled. */
static void test_refused(void **state)
{
    (void)state;
    struct qrn_error err;
    struct qrn_model *model = NULL;
    double done = 0.0;
    struct qrn_device *dev = far_device_open(1, 100000);
    struct qrn_model_options o = {.path = toy_model_make(TOY_NEXT), .device = dev};
    assert_int_equal(qrn_model_open(&o, &model, &err), QRN_ERR_MEMORY);
    if (!strstr(err.text, "does not fit on the device: 0.000 GiB of weights and 0.0") ||
        !strstr(err.text, "0.000 of 0.000 GiB are free"))
        fail_msg("%s", err.text);
    far_device_close(dev);
    o.device = dev = far_device_open(1, plenty);
    o.progress = stop_at_half;
    o.progress_user = &done;
    assert_int_equal(qrn_model_open(&o, &model, &err), QRN_ERR_CANCELLED);
    assert_true(done >= 0.5);
    far_device_close(dev);
}

/* The device of op tests; work is done as late as it may be. */
static void test_gpu(void **state)
{
    (void)state;
    struct qrn_error err;
    struct qrn_device *dev = emulated_open_late(&err);
    if (!dev) skip();
    const char *which = getenv("QRN_TEST_CUDA");
    for (enum toy_kind kind = TOY_DENSE; kind < TOY_KINDS; kind++)
        if (which && strcmp(which, "real") == 0)
            check_all(toy_model_make(kind), true, dev, 2e-3);
        else if (kind != TOY_NEXT) /* the kernels of TOY_MOE */
            check_some(toy_model_make(kind), dev, 2e-3);
    qrn_device_close(dev);
}

/* Logits of the fixture's tokens: MANY of them so many at once (0: all), then one by one. */
enum { MANY = 150, SOME = 40, ROUNDED = MANY + 2 };

static float *logits_on(const struct fixture *f, struct qrn_device *dev, int64_t at_once)
{
    struct qrn_error err;
    struct qrn_model *model = open_on(f, dev, false, &err);
    if (!model) return NULL;
    struct qrn_seq *seq = test_seq(model, 0);
    const int64_t n_vocab = qrn_model_info(model)->vocab_size;
    float *all = malloc((size_t)(ROUNDED * n_vocab) * sizeof *all);
    float *first = test_append_all(model, seq, f->ids, MANY, at_once),
          *then = test_append_all(model, seq, f->ids + MANY, ROUNDED - MANY, 1);
    memcpy(all, first, (size_t)(MANY * n_vocab) * sizeof *all);
    memcpy(all + MANY * n_vocab, then, (size_t)((ROUNDED - MANY) * n_vocab) * sizeof *all);
    free(first);
    free(then);
    qrn_seq_destroy(seq);
    qrn_model_close(model);
    return all;
}

/* Rounded activations, of many tokens as bf16 where the device multiplies so and of few as 8 bits, stay
 * as near to those of float32 as on the CPU, which has 8 bits for all: this model is sensitive.  SOME tokens at once have
 * products of their own. */
static void check_rounded(const char *path, struct qrn_device *dev)
{
    struct fixture f = {
        .path = path, .exact = true, .max_batch = MANY, .cpu = test_device(1)};
    struct qrn_error err;
    for (int i = 0; i < ROUNDED; i++) f.ids[i] = i * 7 % 90;
    float *exact = logits_on(&f, f.cpu, 0);
    f.exact = false;
    float *near = logits_on(&f, f.cpu, 0);
    struct qrn_model *model = open_on(&f, f.cpu, false, &err);
    const int64_t n = ROUNDED * qrn_model_info(model)->vocab_size;
    const double allowed = 1.5 * test_max_difference(near, exact, n);
    qrn_model_close(model);
    for (int64_t at_once = 0; at_once <= SOME; at_once += SOME) {
        float *got = logits_on(&f, dev, at_once);
        const double worst = got ? test_max_difference(got, exact, n) : 0.0;
        print_message("%s, %d at once: %g from float32, %g allowed\n", path, (int)at_once, worst,
                      allowed);
        if (!(worst <= allowed)) fail_msg("%s: %g from float32, %g allowed", path, worst, allowed);
        free(got);
    }
    free(exact);
    free(near);
    qrn_device_close(f.cpu);
}

static void test_gpu_rounded(void **state)
{
    (void)state;
    struct qrn_error err;
    char file[512];
    struct qrn_device *dev = op_test_open_gpu(&err);
    if (!dev) skip();
    (void)snprintf(file, sizeof file, "%s", temp_path("rounded.gguf"));
    for (enum toy_kind kind = TOY_DENSE; kind <= TOY_MOE; kind++) {
        const struct qrn_quantize_options o = {
            .path = toy_model_make(kind), .out_path = file, .type = "Q8_0"};
        if (qrn_quantize(&o, &err) != QRN_OK) fail_msg("%s", err.text);
        check_rounded(file, dev);
        assert_int_equal(remove(file), 0);
    }
    qrn_device_close(dev);
}

/* One sequence, one set of bits: the last logits, however the tokens before came. */
static void test_gpu_exact_batch(void **state)
{
    (void)state;
    static const int64_t cuts[] = {0, 75};
    struct qrn_error err;
    char file[512];
    float *got[2];
    struct fixture f = {.path = file, .exact_batch = true};
    struct qrn_device *dev = op_test_open_gpu(&err);
    if (!dev) skip();
    (void)snprintf(file, sizeof file, "%s", temp_path("exact.gguf"));
    const struct qrn_quantize_options o = {
        .path = toy_model_make(TOY_DENSE), .out_path = file, .type = "Q8_0"};
    if (qrn_quantize(&o, &err) != QRN_OK) fail_msg("%s", err.text);
    for (int i = 0; i < ROUNDED; i++) f.ids[i] = i * 7 % 90;
    struct qrn_model *model = open_on(&f, dev, false, &err);
    if (!model) fail_msg("%s", err.text);
    const int64_t n_vocab = qrn_model_info(model)->vocab_size;
    for (int i = 0; i < 2; i++) {
        struct qrn_seq *seq = test_seq(model, 0);
        got[i] = test_append_all(model, seq, f.ids, ROUNDED, cuts[i]);
        qrn_seq_destroy(seq);
    }
    assert_memory_equal(got[0], got[1], (size_t)(ROUNDED * n_vocab) * sizeof(float));
    for (int i = 0; i < 2; i++) free(got[i]);
    assert_null(strstr(qrn_model_info(model)->bits, "many"));
    qrn_model_close(model);
    assert_int_equal(remove(file), 0);
    qrn_device_close(dev);
}

/* --- what goes wrong on a GPU --- */

/* A sequence, a fork, a file: the first failure, with everything closed again. */
static enum qrn_status run_session(struct qrn_device *dev, void *path, struct qrn_error *err)
{
    static const int32_t ids[80] = {1, 2, 3, 4, 5};
    float logits[96];
    char file[512];
    struct qrn_model *model = NULL;
    struct qrn_seq *seq = NULL, *fork = NULL;
    const struct qrn_model_options o = {.path = path, .device = dev, .max_batch = 64};
    (void)snprintf(file, sizeof file, "%s", temp_path("session.qrnseq"));
    enum qrn_status s = qrn_model_open(&o, &model, err);
    if (s == QRN_OK) s = qrn_seq_create(model, NULL, &seq, err);
    for (int i = 0; i < 4 && s == QRN_OK; i++) {
        struct qrn_append a = {.seq = i < 3 ? seq : fork,
                               .tokens = ids,
                               .n_tokens = i ? 1 : 2,
                               .want = QRN_LOGITS_LAST,
                               .logits = logits};
        s = qrn_model_append(model, &a, 1, NULL, NULL, err);
        assert_int_equal(a.n_done == a.n_tokens, s == QRN_OK);
        if (i == 2 && s == QRN_OK) s = qrn_seq_fork(seq, &fork, err);
    }
    if (s == QRN_OK) s = qrn_seq_save(seq, file, err);
    qrn_seq_destroy(fork);
    qrn_seq_destroy(seq);
    qrn_model_close(model);
    return s;
}

static void test_gpu_failures(void **state)
{
    char path[512];
    (void)state;
    (void)snprintf(path, sizeof path, "%s", toy_model_make(TOY_DENSE));
    emulated_faults_in_turn(3, 37, run_session, path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_far),
        cmocka_unit_test(test_far_unshared),
        cmocka_unit_test(test_far_files),
        cmocka_unit_test(test_traffic),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_gpu),
        cmocka_unit_test(test_gpu_rounded),
        cmocka_unit_test(test_gpu_exact_batch),
        cmocka_unit_test(test_gpu_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
