/* SPDX-License-Identifier: MIT
 * Loading: how much memory it takes at its worst, and that both ends of a model with tied weights
 * share one copy. */
#include "support/model_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "formats/safetensors.h"
#include "model/model_impl.h"
#include "support/op_test.h"
#include "support/sanitized.h"
#include "support/temp.h"
#include "support/toy_model.h"

/* A number of KiB from /proc/self/status; -1: not told here. */
static long status_kib(const char *key)
{
    char line[256];
    long n = -1;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && n < 0 && fgets(line, sizeof line, f))
        if (strncmp(line, key, strlen(key)) == 0) n = strtol(line + strlen(key), NULL, 10);
    if (f) (void)fclose(f);
    return n;
}

/* The peak counts from now on. */
static bool reset_peak(void)
{
    FILE *f = fopen("/proc/self/clear_refs", "w");
    if (!f) return false;
    const bool ok = fputs("5", f) >= 0;
    return fclose(f) == 0 && ok;
}

/* The toy with an mlp of n_ff, in float32: n_ff * 1152 bytes more. */
static size_t write_wide_toy(const char *dir, int64_t n_ff)
{
    char path[600], old[64], name[64];
    struct qrn_error err;
    struct qrn_safetensors st;
    struct stat file;
    size_t n;
    toy_model_write(dir, TOY_DENSE);
    if (qrn_safetensors_open_dir(dir, NULL, NULL, &st, &err) != QRN_OK) fail_msg("%s", err.text);
    struct qrn_archive_tensor *tensors = calloc(st.archive.n_tensors, sizeof *tensors);
    float *values = malloc((size_t)n_ff * 32 * sizeof *values);
    assert_true(tensors && values);
    struct rng r = {3};
    for (int64_t i = 0; i < n_ff * 32; i++) values[i] = (float)rng_uniform(&r, -0.01, 0.01);
    for (size_t i = 0; i < st.archive.n_tensors; i++) {
        struct qrn_archive_tensor *t = &tensors[i];
        *t = st.archive.tensors[i];
        if (!strstr(t->name, ".mlp.")) continue;
        t->shape[t->shape[0] == 32 ? 1 : 0] = n_ff;
        t->data = (const uint8_t *)values;
        t->n_bytes = (size_t)n_ff * 32 * sizeof *values;
    }
    (void)snprintf(path, sizeof path, "%s/wide", dir);
    if (qrn_safetensors_write(path, tensors, st.archive.n_tensors, NULL, &err) != QRN_OK)
        fail_msg("%s", err.text);
    qrn_safetensors_close(&st);
    free(values);
    free(tensors);
    (void)snprintf(old, sizeof old, "%s", "\"intermediate_size\": 48,");
    (void)snprintf(name, sizeof name, "\"intermediate_size\": %d,", (int)n_ff);
    char target[600];
    (void)snprintf(target, sizeof target, "%s/model.safetensors", dir);
    assert_int_equal(rename(path, target), 0);
    assert_int_equal(stat(target, &file), 0);
    (void)snprintf(path, sizeof path, "%s/config.json", dir);
    char *config = read_file(path, &n), *at = strstr(config, old);
    assert_non_null(at);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    (void)fprintf(f, "%.*s%s%s", (int)(at - config), config, name, at + strlen(old));
    assert_int_equal(fclose(f), 0);
    free(config);
    return (size_t)file.st_size;
}

/* File and image are never in memory together: at most 1.15 times the file, beside what a small
 * model takes as well. */
static void test_peak(void **state)
{
    (void)state;
    enum { N_FF = 65536, OTHER_KIB = 10 << 10 };
    char dir[512];
    struct qrn_error err;
    struct qrn_model *model;
    if (SANITIZED || !reset_peak()) skip();
    struct qrn_device *dev = test_device(2);
    (void)snprintf(dir, sizeof dir, "%s", temp_path("wide"));
    (void)mkdir(dir, 0700);
    const size_t file_bytes = write_wide_toy(dir, N_FF);
    assert_true(reset_peak());
    const long before = status_kib("VmRSS:");
    const struct qrn_model_options options = {.path = dir, .device = dev, .max_batch = 64};
    if (qrn_model_open(&options, &model, &err) != QRN_OK) fail_msg("%s", err.text);
    const long peak = status_kib("VmHWM:") - before, file = (long)(file_bytes / 1024);
    print_message("a file of %ld MiB: %ld MiB at most, %ld kept, %ld of them of files\n",
                  file / 1024, peak / 1024, (status_kib("VmRSS:") - before) / 1024,
                  status_kib("RssFile:") / 1024);
    if (peak > file * 115 / 100 + OTHER_KIB) fail_msg("a file of %ld KiB took %ld KiB", file, peak);
    struct qrn_seq *seq = test_seq(model, 0);
    free(test_append_all(model, seq, (const int32_t[]){5, 6, 7}, 3, 0));
    qrn_seq_destroy(seq);
    qrn_model_close(model);
    qrn_device_close(dev);
}

static void test_tied(void **state)
{
    (void)state;
    char dir[512];
    struct qrn_device *dev = test_device(1);
    (void)snprintf(dir, sizeof dir, "%s", temp_path("tied"));
    (void)mkdir(dir, 0700);
    toy_model_write(dir, TOY_DENSE);
    struct qrn_model *model = test_model(dev, dir, false, QRN_KV_DEFAULT);
    const struct qrn_weights *w = &model->weights;
    if (w->head.layout == QRN_LAYOUT_PACKED) {
        assert_ptr_equal(w->embedding.w.data, w->head.w.data);
        assert_int_equal(w->embedding.layout, QRN_LAYOUT_PACKED);
    }
    qrn_model_close(model);
    qrn_device_close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_peak),
        cmocka_unit_test(test_tied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
