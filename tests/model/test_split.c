/* SPDX-License-Identifier: MIT
 * Models whose first layers are on the CPU and whose last ones are on another device.  A far device runs
 * the CPU's kernels, so there every bit is the CPU's, wherever the model is cut; on a GPU it is close. */
#include "model/split_toy.h"

#include <dlfcn.h>
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

enum { N = 210 };

struct fixture {
    const char *path;
    double allowed; /* largest difference of a logit from the CPU's; 0: the same bits */
    struct qrn_model_options options;
    struct qrn_device *cpu;
    struct qrn_model *near, *model; /* on the CPU, split */
    int32_t ids[N];
    int64_t vocab_size, n_layers, d_model;
    float *want; /* [N][vocab_size] */
};

/* The last n_device_layers layers on dev. */
static void fixture_open(struct fixture *f, const char *path, struct qrn_device *dev,
                         int64_t n_device_layers, bool exact, double allowed)
{
    struct rng r = {2026};
    *f = (struct fixture){.path = path, .allowed = allowed, .cpu = test_device(2)};
    f->options = (struct qrn_model_options){.path = path,
                                            .device = dev,
                                            .host_device = f->cpu,
                                            .n_device_layers = n_device_layers,
                                            .exact = exact,
                                            .max_batch = 128};
    f->model = open_with(f->options);
    struct qrn_model_options near = f->options;
    near.device = f->cpu;
    near.host_device = NULL;
    f->near = open_with(near);
    const struct qrn_model_info *info = qrn_model_info(f->model);
    f->vocab_size = info->vocab_size;
    f->n_layers = info->n_layers;
    f->d_model = info->d_model;
    assert_int_equal(info->n_device_layers,
                     n_device_layers < f->n_layers ? n_device_layers : f->n_layers);
    for (int i = 0; i < N; i++) f->ids[i] = (int32_t)rng_below(&r, f->vocab_size);
    struct qrn_seq *seq = test_seq(f->near, 0);
    f->want = test_append_all(f->near, seq, f->ids, N, 0);
    qrn_seq_destroy(seq);
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
    const int64_t on_device = f->options.n_device_layers;
    if (f->allowed == 0.0 && memcmp(got, want, (size_t)n * sizeof *got) != 0)
        fail_msg("%s, %d layers: %s: other bits", f->path, (int)on_device, what);
    const double worst = test_max_difference(got, want, n);
    if (!(worst <= f->allowed))
        fail_msg("%s, %d layers: %s: %g from the CPU, %g allowed", f->path, (int)on_device, what,
                 worst, f->allowed);
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

static void check_direct(const struct fixture *f)
{
    struct qrn_model_options o = f->options;
    o.direct = true;
    struct qrn_model *model = open_with(o);
    struct qrn_seq *seq = test_seq(model, 0);
    continues(f, model, seq, 0, 70, 0, "op by op");
    continues(f, model, seq, 70, 2, 1, "op by op");
    qrn_seq_destroy(seq);
    qrn_model_close(model);
}

/* Forked, led astray, rolled back over an edge, snapshot, beside others in one call. */
static void check_life(const struct fixture *f)
{
    struct qrn_error err;
    struct qrn_seq *seq = test_seq(f->model, 16), *fork = NULL, *restored = NULL;
    struct qrn_snapshot *snapshot = NULL;
    continues(f, f->model, seq, 0, 100, 0, "before a fork");
    assert_int_equal(qrn_seq_fork(seq, &fork, &err), QRN_OK);
    assert_int_equal(qrn_snapshot_take(seq, &snapshot, &err), QRN_OK);
    free(test_append_all(f->model, fork, f->ids, 33, 0)); /* astray */
    continues(f, f->model, seq, 100, 30, 0, "beside a fork");
    assert_int_equal(qrn_seq_rollback(seq, 10, &err), QRN_OK);
    assert_int_equal(qrn_snapshot_restore(snapshot, &restored, &err), QRN_OK);
    float *got[2] = {malloc((size_t)(5 * f->vocab_size) * sizeof(float)),
                     malloc((size_t)(90 * f->vocab_size) * sizeof(float))};
    struct qrn_append a[] = {
        {.seq = seq, .n_tokens = 5, .want = QRN_LOGITS_ALL, .logits = got[0]},
        {.seq = restored, .n_tokens = 90, .want = QRN_LOGITS_ALL, .logits = got[1]},
        {.seq = fork, .n_tokens = 3}};
    const int64_t at[] = {120, 100};
    for (int i = 0; i < 3; i++) a[i].tokens = f->ids + qrn_seq_n_tokens(a[i].seq) % 130;
    if (qrn_model_append(f->model, a, 3, NULL, NULL, &err) != QRN_OK) fail_msg("%s", err.text);
    for (int i = 0; i < 2; i++) {
        close_enough(f, got[i], f->want + at[i] * f->vocab_size, a[i].n_tokens * f->vocab_size,
                     i ? "restored" : "rolled back");
        free(got[i]);
    }
    continues(f, f->model, restored, 190, 4, 1, "after a batch");
    qrn_seq_destroy(restored);
    qrn_snapshot_free(snapshot);
    qrn_seq_destroy(fork);
    qrn_seq_destroy(seq);
    assert_int_equal(qrn_model_memory(f->model).in_use_bytes, 0);
}

static char *bytes_of(const char *path, size_t *n)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    *n = (size_t)ftell(file);
    rewind(file);
    char *bytes = malloc(*n);
    assert_int_equal(fread(bytes, 1, *n, file), *n);
    assert_int_equal(fclose(file), 0);
    return bytes;
}

/* What a file holds does not show where the model was cut: only the bits id before it does. */
static void check_file(const struct fixture *f)
{
    struct qrn_error err;
    struct qrn_seq *seq = test_seq(f->model, 20), *near = test_seq(f->near, 20), *loaded = NULL;
    char file[512], other[512];
    (void)snprintf(file, sizeof file, "%s", temp_path("split.qrnseq"));
    (void)snprintf(other, sizeof other, "%s", temp_path("near.qrnseq"));
    continues(f, f->model, seq, 0, 130, 0, "before saving");
    continues(f, f->near, near, 0, 130, 0, "on the CPU");
    if (qrn_seq_save(seq, file, &err) != QRN_OK) fail_msg("%s", err.text);
    if (qrn_seq_save(near, other, &err) != QRN_OK) fail_msg("%s", err.text);
    if (f->allowed == 0.0) {
        size_t n[2];
        char *bytes[2] = {bytes_of(file, &n[0]), bytes_of(other, &n[1])};
        const size_t header = 88, of_bits = strlen(qrn_model_bits(f->model)),
                     of_near = strlen(qrn_model_bits(f->near));
        assert_int_equal(n[0] - of_bits, n[1] - of_near);
        assert_memory_equal(bytes[0] + header + of_bits, bytes[1] + header + of_near,
                            n[0] - header - of_bits - 8);
        free(bytes[0]);
        free(bytes[1]);
    }
    if (qrn_seq_load(f->model, file, 0, &loaded, &err) != QRN_OK) fail_msg("%s", err.text);
    assert_int_equal(qrn_seq_rollback(loaded, 10, &err), QRN_OK);
    continues(f, f->model, loaded, 120, 15, 0, "loaded and rolled back");
    qrn_seq_destroy(loaded);
    loaded = NULL;
    if (strcmp(qrn_model_bits(f->model), qrn_model_bits(f->near)) != 0)
        assert_int_equal(qrn_seq_load(f->near, file, 0, &loaded, &err), QRN_ERR_MISMATCH);
    if (qrn_seq_load(f->near, file, QRN_LOAD_ANY_BITS, &loaded, &err) != QRN_OK)
        fail_msg("%s", err.text);
    continues(f, f->near, loaded, 130, 5, 0, "taken to the CPU");
    qrn_seq_destroy(loaded);
    if (qrn_seq_load(f->model, other, QRN_LOAD_ANY_BITS, &loaded, &err) != QRN_OK)
        fail_msg("%s", err.text);
    continues(f, f->model, loaded, 130, 5, 0, "taken from the CPU");
    qrn_seq_destroy(loaded);
    qrn_seq_destroy(near);
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

static void check_hidden(const struct fixture *f, int64_t n)
{
    float *got = hidden_of(f->model, f, n), *want = hidden_of(f->near, f, n);
    close_enough(f, got, want, (f->n_layers + 1) * n * f->d_model, "hidden states");
    free(got);
    free(want);
}

static bool count_down(void *user)
{
    return (*(int *)user)-- == 0;
}

/* Cancelled at each layer of the second batch, those of the device at once; what was done stays, and the sequence goes
 * on. */
static void check_cancel(const struct fixture *f)
{
    struct qrn_error err;
    const int64_t n_device = f->options.n_device_layers,
                  n_asked = n_device < f->n_layers ? f->n_layers - n_device + (n_device > 0) : 1;
    for (int at = 0; at < (int)n_asked; at++) {
        struct qrn_seq *seq = test_seq(f->model, 0);
        int left = (int)n_asked + at;
        struct qrn_append a = {.seq = seq, .tokens = f->ids, .n_tokens = 200};
        assert_int_equal(qrn_model_append(f->model, &a, 1, count_down, &left, &err),
                         QRN_ERR_CANCELLED);
        assert_int_equal(a.n_done, 128);
        continues(f, f->model, seq, 128, 40, 0, "after a step that was cancelled");
        qrn_seq_destroy(seq);
    }
}

/* A token whose step ends between the stages, when the first one has written what it remembers. */
static void check_cancel_between(const struct fixture *f)
{
    struct qrn_error err;
    for (int at = 60; at < 70; at++) { /* over an edge */
        struct qrn_seq *seq = test_seq(f->model, at % 2 ? 5 : 0);
        int left = 1;
        struct qrn_append a = {.seq = seq, .tokens = f->ids + 100, .n_tokens = 1};
        continues(f, f->model, seq, 0, at, 0, "before a step that is cancelled");
        assert_int_equal(qrn_model_append(f->model, &a, 1, count_down, &left, &err),
                         QRN_ERR_CANCELLED);
        assert_int_equal(a.n_done, 0);
        continues(f, f->model, seq, at, 3, 1, "after a step that was cancelled");
        qrn_seq_destroy(seq);
    }
}

static void check_all(const char *path, struct qrn_device *dev, int64_t n_device_layers, bool exact,
                      double allowed)
{
    struct fixture f;
    fixture_open(&f, path, dev, n_device_layers, exact, allowed);
    check_cuts(&f);
    check_direct(&f);
    check_life(&f);
    if (n_device_layers) check_file(&f);
    check_hidden(&f, 140);
    check_cancel(&f);
    if (n_device_layers && n_device_layers < f.n_layers) check_cancel_between(&f);
    fixture_close(&f);
}

static void test_far(void **state)
{
    (void)state;
    for (enum toy_kind kind = TOY_DENSE; kind < TOY_KINDS; kind++)
        for (int64_t n = 0; n <= 4; n++) { /* toys have 3 or 4 layers */
            struct qrn_device *dev = far_device_open(1, plenty);
            check_all(toy_model_make(kind), dev, n, n % 2 == 1, 0.0);
            far_device_close(dev);
        }
}

/* Weights of every way to lie in files, tied ends among them; rounded activations. */
static void test_far_files(void **state)
{
    static const char *const models[] = {"models/gguf/fairy-Q4_K_M.gguf", "models/fairy-mlx-6bit",
                                         "models/next_small", "models/gguf/moe_small-Q4_K_M.gguf"};
    (void)state;
    if (SANITIZED || !shared_path("models")) skip();
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct fixture f;
        char path[1024];
        (void)snprintf(path, sizeof path, "%s", shared_path(models[i]));
        struct qrn_device *dev = far_device_open(1, plenty);
        fixture_open(&f, path, dev, 1 + (int64_t)i % 2, false, 0.0);
        struct qrn_seq *seq = test_seq(f.model, 0);
        continues(&f, f.model, seq, 0, 70, 0, "a prompt");
        continues(&f, f.model, seq, 70, 3, 1, "one by one");
        qrn_seq_destroy(seq);
        fixture_close(&f);
        far_device_close(dev);
    }
}

/* What a step sends to the device and waits for: the tables, x, and the logits back. */
static void test_traffic(void **state)
{
    (void)state;
    struct fixture f;
    struct qrn_error err;
    struct qrn_device *dev = far_device_open(1, plenty);
    fixture_open(&f, toy_model_make(TOY_MOE), dev, 2, false, 0.0);
    const struct qrn_sampling likeliest = {0};
    struct qrn_append a = {.seq = test_seq(f.model, 0), .n_tokens = 1, .sampling = &likeliest};
    for (int i = 0; i < 70; i++) {
        a.tokens = f.ids + i;
        const struct far_counts before = far_device_counts();
        if (qrn_model_append(f.model, &a, 1, NULL, NULL, &err) != QRN_OK) fail_msg("%s", err.text);
        const struct far_counts after = far_device_counts();
        assert_int_equal(after.uploads - before.uploads, 2);
        assert_int_equal(after.fetches - before.fetches, 1);
        assert_int_equal(after.reads - before.reads, 0);
        assert_int_equal(after.writes - before.writes, 0);
        assert_int_equal(after.submits - before.submits, 1); /* the layers and the head */
    }
    qrn_seq_destroy(a.seq);
    fixture_close(&f);
    far_device_close(dev);
}

/* --- on a GPU, emulated or real --- */

/* Over an edge, one by one, twice with the same bits, rolled back beside another sequence, through a
 * file. */
static void check_some(const char *path, struct qrn_device *dev, int64_t n_device_layers)
{
    enum { FIRST = 65, THEN = 3 };
    struct fixture f;
    struct qrn_error err;
    struct qrn_seq *seq[2], *fork = NULL, *loaded = NULL;
    float *got[2];
    char file[512];
    fixture_open(&f, path, dev, n_device_layers, true, 2e-3);
    (void)snprintf(file, sizeof file, "%s", temp_path("some.qrnseq"));
    for (int i = 0; i < 2; i++) {
        seq[i] = test_seq(f.model, 8);
        continues(&f, f.model, seq[i], 0, FIRST, 0, "a prompt");
        got[i] = test_append_all(f.model, seq[i], f.ids + FIRST, THEN, 1);
        close_enough(&f, got[i], f.want + FIRST * f.vocab_size, THEN * f.vocab_size, "one by one");
    }
    assert_memory_equal(got[0], got[1], (size_t)(THEN * f.vocab_size) * sizeof(float));
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
    check_hidden(&f, 5);
    for (int i = 0; i < 2; i++) {
        free(got[i]);
        qrn_seq_destroy(seq[i]);
    }
    qrn_seq_destroy(fork);
    qrn_seq_destroy(loaded);
    fixture_close(&f);
}

/* Work on the device is done as late as it may be. */
static void test_gpu(void **state)
{
    (void)state;
    struct qrn_error err;
    struct qrn_device *dev = emulated_open_late(&err);
    if (!dev) skip();
    const char *which = getenv("QRN_TEST_CUDA");
    for (int64_t n = 0; n <= 4; n++)
        if (which && strcmp(which, "real") == 0)
            check_all(toy_model_make(n % 2 ? TOY_DENSE : TOY_MOE), dev, n, true, 2e-3);
        else
            check_some(toy_model_make(n % 2 ? TOY_DENSE : TOY_MOE), dev, n);
    qrn_device_close(dev);
}

/* One sequence, one set of bits with exact_batch: however the tokens before came. */
static void test_gpu_exact_batch(void **state)
{
    (void)state;
    enum { MANY = 130 };
    static const int64_t cuts[] = {0, 75};
    struct qrn_error err;
    float *got[2];
    int32_t ids[MANY];
    struct qrn_device *cpu = test_device(1), *dev = op_test_open_gpu(&err);
    if (!dev) {
        qrn_device_close(cpu);
        skip();
    }
    struct qrn_model *model =
        open_with((struct qrn_model_options){.path = toy_model_make(TOY_DENSE),
                                             .device = dev,
                                             .host_device = cpu,
                                             .n_device_layers = 2,
                                             .exact_batch = true,
                                             .max_batch = 128});
    const int64_t n_vocab = qrn_model_info(model)->vocab_size;
    for (int i = 0; i < MANY; i++) ids[i] = i * 7 % 90;
    for (int i = 0; i < 2; i++) {
        struct qrn_seq *seq = test_seq(model, 0);
        got[i] = test_append_all(model, seq, ids, MANY, cuts[i]);
        qrn_seq_destroy(seq);
    }
    assert_memory_equal(got[0], got[1], (size_t)(MANY * n_vocab) * sizeof(float));
    for (int i = 0; i < 2; i++) free(got[i]);
    qrn_model_close(model);
    qrn_device_close(cpu);
    qrn_device_close(dev);
}

struct split {
    const char *path;
    struct qrn_device *cpu;
};

/* A sequence, a fork, a file: the first failure, with everything closed again. */
static enum qrn_status run_session(struct qrn_device *dev, void *context, struct qrn_error *err)
{
    const struct split *on = context;
    static const int32_t ids[80] = {1, 2, 3, 4, 5};
    static const struct qrn_sampling sampling = {.temperature = 1.0f, .top_k = 5};
    char file[512];
    struct qrn_model *model = NULL;
    struct qrn_seq *seq = NULL, *fork = NULL;
    const struct qrn_model_options o = {.path = on->path,
                                        .device = dev,
                                        .host_device = on->cpu,
                                        .n_device_layers = 1,
                                        .max_batch = 64};
    (void)snprintf(file, sizeof file, "%s", temp_path("session.qrnseq"));
    enum qrn_status s = qrn_model_open(&o, &model, err);
    if (s == QRN_OK) s = qrn_seq_create(model, NULL, &seq, err);
    for (int i = 0; i < 4 && s == QRN_OK; i++) {
        struct qrn_append a = {.seq = i < 3 ? seq : fork,
                               .tokens = ids,
                               .n_tokens = i ? 1 : 66,
                               .sampling = &sampling};
        s = qrn_model_append(model, &a, 1, NULL, NULL, err);
        assert_int_equal(a.n_done == a.n_tokens, s == QRN_OK);
        assert_int_equal(a.next >= 0, s == QRN_OK);
        if (i == 2 && s == QRN_OK) s = qrn_seq_fork(seq, &fork, err);
    }
    if (s == QRN_OK) s = qrn_seq_save(seq, file, err);
    qrn_seq_destroy(fork);
    qrn_seq_destroy(seq);
    qrn_model_close(model);
    return s;
}

/* Sessions that fail one after the other, until one passes. */
static void fail_in_turn(void *emulator, const char *variable, int step, enum qrn_status want,
                         struct split *on)
{
    int n_failed;
    assert_int_equal(
        emulated_fault_in_turn(emulator, variable, step, want, run_session, on, &n_failed), QRN_OK);
    assert_true(n_failed > 0);
}

static void test_gpu_failures(void **state)
{
    (void)state;
    void *emulator = emulator_open();
    if (!emulator) skip();
    struct split on = {toy_model_make(TOY_DENSE), test_device(1)};
    fail_in_turn(emulator, "QRN_EMULATED_FAIL_ALLOC", 1, QRN_ERR_MEMORY, &on);
    fail_in_turn(emulator, "QRN_EMULATED_LOSE_AT_LAUNCH", 19, QRN_ERR_DEVICE, &on);
    qrn_device_close(on.cpu);
    (void)dlclose(emulator);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_far),
        cmocka_unit_test(test_far_files),
        cmocka_unit_test(test_traffic),
        cmocka_unit_test(test_gpu),
        cmocka_unit_test(test_gpu_exact_batch),
        cmocka_unit_test(test_gpu_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
