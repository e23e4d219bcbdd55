/* SPDX-License-Identifier: MIT
 * One sequence, one set of bits: logits are identical by memcmp however the tokens were cut into
 * calls, with 1 and more threads, recorded and called op by op, alone and in a batch, after fork,
 * rollback, snapshot, and from a file in another process. */
#include "support/model_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "support/op_test.h"
#include "support/sanitized.h"
#include "support/shared.h"
#include "support/temp.h"
#include "support/toy_model.h"

enum { N = 620 }; /* tokens of the sequence that all is compared with */

static const char *program; /* this one, to be run again */

struct options {
    bool exact;
    enum qrn_kv_type kv;
};
static const struct options all_options[] = {
    {false, QRN_KV_F16}, {true, QRN_KV_F32}, {true, QRN_KV_F16}, {false, QRN_KV_F32}};

/* A model, its tokens, and the logits after each of them. */
struct fixture {
    const char *path;
    bool every_place; /* toys: all places of rollbacks and batches; else some */
    struct options o;
    struct qrn_device *dev;
    struct qrn_model *model;
    int32_t ids[N];
    int64_t vocab_size;
    float *want;
};

static struct qrn_model *open_with(struct qrn_device *dev, const struct fixture *f, bool direct,
                                   int64_t max_batch)
{
    struct qrn_error err;
    struct qrn_model *model = NULL;
    const struct qrn_model_options o = {.path = f->path,
                                        .device = dev,
                                        .exact = f->o.exact,
                                        .kv = f->o.kv,
                                        .direct = direct,
                                        .max_batch = max_batch};
    if (qrn_model_open(&o, &model, &err) != QRN_OK) fail_msg("%s", err.text);
    return model;
}

static void make_ids(struct fixture *f)
{
    struct rng r = {2026};
    for (int i = 0; i < N; i++) f->ids[i] = (int32_t)rng_below(&r, f->vocab_size);
}

static void fixture_open(struct fixture *f, const char *path, struct options o, bool every_place)
{
    *f = (struct fixture){.path = path, .every_place = every_place, .o = o, .dev = test_device(1)};
    f->model = open_with(f->dev, f, false, 0);
    f->vocab_size = qrn_model_info(f->model)->vocab_size;
    make_ids(f);
    struct qrn_seq *seq = test_seq(f->model, 0);
    f->want = test_append_all(f->model, seq, f->ids, N, 0);
    qrn_seq_destroy(seq);
}

static void fixture_close(struct fixture *f)
{
    free(f->want);
    qrn_model_close(f->model);
    qrn_device_close(f->dev);
}

static void same(const struct fixture *f, const float *got, int64_t first, int64_t n,
                 const char *what)
{
    const size_t row = (size_t)f->vocab_size;
    for (int64_t i = 0; i < n; i++)
        if (memcmp(got + (size_t)i * row, f->want + (size_t)(first + i) * row, row * sizeof *got) !=
            0)
            fail_msg("%s (%s, kv %d): %s: the logits of position %lld differ", f->path,
                     f->o.exact ? "exact" : "q8", (int)f->o.kv, what, (long long)(first + i));
}

/* Appends ids first .. first + n - 1 in cuts and compares. */
static void continues(const struct fixture *f, struct qrn_model *model, struct qrn_seq *seq,
                      int64_t first, int64_t n, int64_t cut, const char *what)
{
    assert_int_equal(qrn_seq_n_tokens(seq), first);
    float *got = test_append_all(model, seq, f->ids + first, n, cut);
    same(f, got, first, n, what);
    free(got);
}

static void check_cuts(const struct fixture *f)
{
    static const int64_t cuts[] = {1, 2, 3, 7, 63, 64, 65, 300};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        char what[32];
        (void)snprintf(what, sizeof what, "cuts of %d", (int)cuts[i]);
        struct qrn_seq *seq = test_seq(f->model, 0);
        continues(f, f->model, seq, 0, N, cuts[i], what);
        qrn_seq_destroy(seq);
    }
}

static void check_threads_and_calls(const struct fixture *f)
{
    static const struct {
        int n_threads;
        bool direct;
        int64_t max_batch;
        const char *what;
    } ways[] = {
        {2, false, 0, "two threads"},
        {3, false, 100, "three threads, batches of 100"},
        {2, true, 64, "two threads, op by op"},
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct qrn_device *dev = test_device(ways[i].n_threads);
        struct qrn_model *model = open_with(dev, f, ways[i].direct, ways[i].max_batch);
        struct qrn_seq *seq = test_seq(model, 0);
        continues(f, model, seq, 0, 200, 65, ways[i].what);
        continues(f, model, seq, 200, 10, 1, ways[i].what);
        continues(f, model, seq, 210, N - 210, 0, ways[i].what);
        qrn_seq_destroy(seq);
        qrn_model_close(model);
        qrn_device_close(dev);
    }
}

/* Five sequences that stand at 0, 62, 64, 127, 300 take 1, 3, 64, 65, 200 tokens in one call, in
 * with toys in every rotation of who takes what. */
static void check_batch(const struct fixture *f)
{
    static const int64_t at[] = {0, 62, 64, 127, 300}, takes[] = {1, 3, 64, 65, 200};
    for (int shift = 0; shift < (f->every_place ? 5 : 1); shift++) {
        struct qrn_append a[5];
        struct qrn_error err;
        for (int i = 0; i < 5; i++) {
            struct qrn_seq *seq = test_seq(f->model, i == 2 ? 16 : 0);
            const int64_t n = takes[(i + shift) % 5];
            free(test_append_all(f->model, seq, f->ids, at[i], 0));
            a[i] =
                (struct qrn_append){.seq = seq,
                                    .tokens = f->ids + at[i],
                                    .n_tokens = n,
                                    .want = QRN_LOGITS_ALL,
                                    .logits = malloc((size_t)(n * f->vocab_size) * sizeof(float))};
        }
        if (qrn_model_append(f->model, a, 5, NULL, NULL, &err) != QRN_OK) fail_msg("%s", err.text);
        for (int i = 0; i < 5; i++) {
            same(f, a[i].logits, at[i], a[i].n_tokens, "in a batch of 5");
            free(a[i].logits);
            continues(f, f->model, a[i].seq, at[i] + a[i].n_tokens, 10, 1, "after a batch of 5");
            qrn_seq_destroy(a[i].seq);
        }
    }
}

/* Back by 1 .. 64 tokens, over and beside the edge at 192, having been led astray by other tokens. */
static void check_rollback(const struct fixture *f)
{
    static const int64_t stops[] = {190, 192, 193, 200, 255, 256};
    struct qrn_error err;
    for (size_t i = 0; i < sizeof stops / sizeof *stops; i++)
        for (int64_t back = 1; back <= 64;
             back += f->every_place ? (back < 4 || back > 60 ? 1 : 7) : 63) {
            struct qrn_seq *seq = test_seq(f->model, 64);
            free(test_append_all(f->model, seq, f->ids, stops[i] - back, 0));
            free(test_append_all(f->model, seq, f->ids + 300, back, i % 2 ? 9 : 0)); /* astray */
            if (qrn_seq_rollback(seq, back, &err) != QRN_OK) fail_msg("%s", err.text);
            continues(f, f->model, seq, stops[i] - back, 6, back % 3, "after a rollback");
            qrn_seq_destroy(seq);
        }
}

static void check_rollback_twice(const struct fixture *f)
{
    struct qrn_error err;
    struct qrn_seq *seq = test_seq(f->model, 64);
    free(test_append_all(f->model, seq, f->ids, 130, 0));
    free(test_append_all(f->model, seq, f->ids + 400, 20, 0));
    assert_int_equal(qrn_seq_max_rollback(seq), 64);
    assert_int_equal(qrn_seq_rollback(seq, 30, &err), QRN_OK);
    assert_int_equal(qrn_seq_max_rollback(seq), 34);
    continues(f, f->model, seq, 120, 3, 1, "after the first of two rollbacks");
    assert_int_equal(qrn_seq_rollback(seq, 37, &err), QRN_OK);
    assert_int_equal(qrn_seq_rollback(seq, 1, &err), QRN_ERR_STATE);
    continues(f, f->model, seq, 86, 150, 0, "after the second of two rollbacks");
    qrn_seq_destroy(seq);
}

/* Forks of forks at every kind of place, each going its own way while the others wait. */
static void check_fork(const struct fixture *f)
{
    static const int64_t at[] = {1, 63, 64, 100, 128, 191};
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
        free(test_append_all(f->model, astray, f->ids + 500, 70, 0));
        continues(f, f->model, fork, at[i], 140, 0, "a fork");
        qrn_seq_destroy(astray);
        qrn_seq_destroy(fork);
        assert_int_equal(qrn_snapshot_restore(snapshot, &fork, &err), QRN_OK);
        continues(f, f->model, fork, at[i], 5, 1, "restored");
        qrn_seq_destroy(fork);
        qrn_snapshot_free(snapshot);
    }
    qrn_seq_destroy(seq);
}

/* --- another process --- */

static int64_t number(const char *text)
{
    return strtol(text, NULL, 10);
}

/* The child: loads a file, appends n tokens one by one, writes the logits. */
static int continue_from_file(char **argv)
{
    struct fixture f = {.path = argv[2],
                        .o = {number(argv[3]) != 0, (enum qrn_kv_type)number(argv[4])}};
    struct qrn_error err;
    struct qrn_seq *seq;
    f.dev = test_device(1);
    f.model = open_with(f.dev, &f, false, 0);
    f.vocab_size = qrn_model_info(f.model)->vocab_size;
    make_ids(&f);
    if (qrn_seq_load(f.model, argv[5], 0, &seq, &err) != QRN_OK) return 3;
    const int64_t n = number(argv[6]), at = qrn_seq_n_tokens(seq);
    float *got = test_append_all(f.model, seq, f.ids + at, n, 1);
    FILE *out = fopen(argv[7], "wb");
    const size_t count = (size_t)(n * f.vocab_size);
    const bool good = out && fwrite(got, sizeof *got, count, out) == count && fclose(out) == 0;
    free(got);
    qrn_seq_destroy(seq);
    qrn_model_close(f.model);
    qrn_device_close(f.dev);
    return good ? 0 : 4;
}

static void run_child(const struct fixture *f, const char *file, const char *n, const char *logits)
{
    char exact[8], kv[8];
    (void)snprintf(exact, sizeof exact, "%d", f->o.exact);
    (void)snprintf(kv, sizeof kv, "%d", (int)f->o.kv);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        execl(program, program, "--continue", f->path, exact, kv, file, n, logits, (char *)NULL);
        _exit(9);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) fail_msg("the child ended with %d", status);
}

static void check_file(const struct fixture *f)
{
    static const int64_t at[] = {64, 150};
    struct qrn_error err;
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        struct qrn_seq *seq = test_seq(f->model, 20), *loaded = NULL;
        continues(f, f->model, seq, 0, at[i], 0, "before saving");
        char file[512], logits[512];
        (void)snprintf(file, sizeof file, "%s", temp_path("saved.qrnseq"));
        (void)snprintf(logits, sizeof logits, "%s", temp_path("logits"));
        if (qrn_seq_save(seq, file, &err) != QRN_OK) fail_msg("%s", err.text);
        run_child(f, file, "9", logits);
        size_t n_bytes;
        float *got = read_file(logits, &n_bytes);
        assert_non_null(got);
        assert_int_equal(n_bytes, (size_t)(9 * f->vocab_size) * sizeof *got);
        same(f, got, at[i], 9, "continued in another process");
        free(got);
        if (qrn_seq_load(f->model, file, 0, &loaded, &err) != QRN_OK) fail_msg("%s", err.text);
        assert_int_equal(qrn_seq_max_rollback(loaded), qrn_seq_max_rollback(seq));
        assert_int_equal(qrn_seq_rollback(loaded, 20, &err), QRN_OK);
        continues(f, f->model, loaded, at[i] - 20, 30, 0, "loaded and rolled back");
        qrn_seq_destroy(loaded);
        qrn_seq_destroy(seq);
    }
}

static void check_all(const char *path, size_t n_options, bool every_place)
{
    for (size_t i = 0; i < (SANITIZED ? 1 : n_options); i++) {
        struct fixture f;
        fixture_open(&f, path, all_options[i], every_place);
        check_cuts(&f);
        check_threads_and_calls(&f);
        check_batch(&f);
        check_rollback(&f);
        check_rollback_twice(&f);
        check_fork(&f);
        check_file(&f);
        fixture_close(&f);
    }
}

static void check_toy(enum toy_kind kind)
{
    char dir[512];
    (void)snprintf(dir, sizeof dir, "%s", temp_path("toy"));
    (void)mkdir(dir, 0700);
    toy_model_write(dir, kind);
    check_all(dir, 4, !SANITIZED);
}

static void test_toy_dense(void **state)
{
    (void)state;
    check_toy(TOY_DENSE);
}

static void test_toy_moe(void **state)
{
    (void)state;
    check_toy(TOY_MOE);
}

static void test_toy_next(void **state)
{
    (void)state;
    check_toy(TOY_NEXT);
}

/* Portable kernels take minutes for what the toys show as well. */
static bool too_slow(void)
{
    struct qrn_device *dev = test_device(1);
    const bool generic = strstr(qrn_device_bits(dev), "generic") != NULL;
    qrn_device_close(dev);
    return generic || SANITIZED;
}

static void test_fairy(void **state)
{
    (void)state;
    if (too_slow()) skip();
    check_all("models/fairy", 4, false);
}

static void test_shared(void **state)
{
    static const char *const models[] = {"models/moe_small",
                                         "models/next_small",
                                         "models/gguf/moe_small-Q4_K_M.gguf",
                                         "models/gguf/next_small-Q4_K_M.gguf",
                                         "models/gguf/fairy-Q4_0.gguf",
                                         "models/fairy-mlx-6bit"};
    (void)state;
    if (too_slow() || !shared_path("models")) skip();
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char path[1024];
        const char *found = shared_path(models[i]);
        assert_non_null(found);
        (void)snprintf(path, sizeof path, "%s", found);
        check_all(path, i < 2 ? 4 : 1, false);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_toy_dense), cmocka_unit_test(test_toy_moe),
        cmocka_unit_test(test_toy_next),  cmocka_unit_test(test_fairy),
        cmocka_unit_test(test_shared),
    };
    if (argc == 8 && strcmp(argv[1], "--continue") == 0) return continue_from_file(argv);
    program = argv[0];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
