/* SPDX-License-Identifier: MIT
 * Damaged models, opened whole: a toy's config.json, model.safetensors and its GGUF twin are mutated, the
 * model is opened from memory and takes three tokens.  A clear error or a working model, within the
 * memory that the files justify. */
#include "support/model_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include "support/counting_allocator.h"
#include "support/memory_source.h"
#include "support/mutate.h"
#include "support/sanitized.h"
#include "support/temp.h"
#include "support/toy_model.h"

enum { N_MUTATIONS = SANITIZED ? 5000 : 20000, MIB = 1024 * 1024 };

struct outcome {
    struct mutate_tally tally;
    double slowest;
};

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Tokens go through a model that opened: any numbers, no fault. */
static void use(struct qrn_model *model)
{
    struct qrn_error err = {.text = ""};
    struct qrn_seq *seq;
    const int64_t v = qrn_model_info(model)->vocab_size;
    const int32_t ids[] = {0, (int32_t)(v - 1), (int32_t)(v / 2)};
    float *logits = malloc((size_t)v * sizeof *logits);
    assert_non_null(logits);
    if (qrn_seq_create(model, NULL, &seq, &err) == QRN_OK) {
        struct qrn_append a = {
            .seq = seq, .tokens = ids, .n_tokens = 3, .want = QRN_LOGITS_LAST, .logits = logits};
        if (qrn_model_append(model, &a, 1, NULL, NULL, &err) != QRN_OK)
            assert_true(err.text[0] != 0);
        qrn_seq_destroy(seq);
    } else {
        assert_true(err.text[0] != 0);
    }
    free(logits);
}

static void open_damaged(struct outcome *o, struct qrn_device *dev, const struct memory_file *files,
                         size_t n_files, const char *gguf)
{
    struct memory_source memory = {.files = files, .n_files = n_files};
    const struct qrn_source source = {.open = memory_source_open,
                                      .read = memory_source_read,
                                      .map = memory_source_map,
                                      .close = memory_source_close,
                                      .user = &memory};
    struct counting_allocator counting;
    struct qrn_error err = {.text = ""};
    struct qrn_model *model = NULL;
    size_t n_bytes = 0;
    counting_allocator_init(&counting);
    for (size_t i = 0; i < n_files; i++) n_bytes += files[i].n_bytes;
    counting.limit = 4 * n_bytes + 64 * (size_t)MIB;
    const double start = seconds();
    const struct qrn_model_options options = {.path = gguf,
                                              .source = &source,
                                              .device = dev,
                                              .host = counting_host(&counting),
                                              .max_batch = 64};
    const enum qrn_status s = qrn_model_open(&options, &model, &err);
    if (s == QRN_OK) {
        o->tally.n_accepted++;
        use(model);
        qrn_model_close(model);
    } else {
        if (!err.text[0]) fail_msg("%s without a word", qrn_status_name(s));
        mutate_count_refusal(&o->tally, err.text);
    }
    const double took = seconds() - start;
    if (took > o->slowest) o->slowest = took;
    assert_false(memory.misused);
    assert_int_equal(memory.n_open, 0);
    assert_int_equal(counting.live_blocks, 0);
    assert_int_equal(counting.n_bad_frees, 0);
}

static void report(const struct outcome *o, const char *title)
{
    mutate_print(&o->tally, title);
    print_message("%s: %zu opened, slowest %.3f s\n", title, o->tally.n_accepted, o->slowest);
    assert_true(o->tally.n_accepted > 0 && o->tally.n_refused > 0);
    assert_true(o->slowest < 1.0);
}

typedef void mutator(struct mutate_random *, struct mutate_bytes *);

/* Mutates file `which` of a directory's two, the other stays good. */
static void check_directory(enum toy_kind kind, size_t which, mutator *mutate, const char *title)
{
    static const char *const names[] = {"config.json", "model.safetensors"};
    char dir[512], path[600];
    struct outcome *o = calloc(1, sizeof *o);
    struct qrn_device *dev = test_device(1);
    struct memory_file files[2];
    struct mutate_random r = {.state = 7 + which};
    assert_non_null(o);
    (void)snprintf(dir, sizeof dir, "%s", temp_path("toy"));
    (void)mkdir(dir, 0700);
    toy_model_write(dir, kind);
    for (size_t i = 0; i < 2; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        files[i] = (struct memory_file){.name = names[i]};
        files[i].bytes = read_file(path, &files[i].n_bytes);
        assert_non_null(files[i].bytes);
    }
    for (int n = 0; n < N_MUTATIONS; n++) {
        struct mutate_bytes damaged = mutate_copy(files[which].bytes, files[which].n_bytes);
        struct memory_file all[2] = {files[0], files[1]};
        mutate(&r, &damaged);
        all[which].bytes = damaged.bytes;
        all[which].n_bytes = damaged.n;
        open_damaged(o, dev, all, 2, NULL);
        free(damaged.bytes);
    }
    report(o, title);
    for (size_t i = 0; i < 2; i++) {
        union {
            const void *in;
            void *out;
        } bytes = {.in = files[i].bytes};
        free(bytes.out);
    }
    qrn_device_close(dev);
    free(o);
}

static void test_config(void **state)
{
    (void)state;
    check_directory(TOY_DENSE, 0, mutate_json, "config.json of a dense model");
    check_directory(TOY_MOE, 0, mutate_json, "config.json of a mixture of experts");
}

static void test_safetensors(void **state)
{
    (void)state;
    check_directory(TOY_NEXT, 1, mutate_safetensors, "model.safetensors");
}

static void test_gguf(void **state)
{
    (void)state;
    char dir[512], path[512];
    struct qrn_error err;
    struct outcome *o = calloc(1, sizeof *o);
    struct qrn_device *dev = test_device(1);
    struct mutate_random r = {.state = 3};
    assert_non_null(o);
    (void)snprintf(dir, sizeof dir, "%s", temp_path("toy"));
    (void)snprintf(path, sizeof path, "%s", temp_path("toy.gguf"));
    (void)mkdir(dir, 0700);
    toy_model_write(dir, TOY_MOE);
    const struct qrn_quantize_options q = {.path = dir, .out_path = path, .type = "Q8_0"};
    if (qrn_quantize(&q, &err) != QRN_OK) fail_msg("%s", err.text);
    size_t n_bytes;
    void *good = read_file(path, &n_bytes);
    assert_non_null(good);
    for (int n = 0; n < N_MUTATIONS; n++) {
        struct mutate_bytes damaged = mutate_copy(good, n_bytes);
        mutate_gguf(&r, &damaged);
        const struct memory_file file = {
            .name = "toy.gguf", .bytes = damaged.bytes, .n_bytes = damaged.n};
        open_damaged(o, dev, &file, 1, "toy.gguf");
        free(damaged.bytes);
    }
    report(o, "a GGUF file");
    free(good);
    qrn_device_close(dev);
    free(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_config),
        cmocka_unit_test(test_safetensors),
        cmocka_unit_test(test_gguf),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
