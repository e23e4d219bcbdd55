/* SPDX-License-Identifier: MIT
 * The corpora of the fuzz targets: each file goes through its target; y_ files open, n_ files are
 * refused with a text. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include "support/temp.h"

#define LLVMFuzzerTestOneInput fuzz_gguf
#include "../../fuzz/fuzz_gguf.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_safetensors
#include "../../fuzz/fuzz_safetensors.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_config
#include "../../fuzz/fuzz_config.c"
#undef LLVMFuzzerTestOneInput

typedef enum qrn_status (*opener)(const uint8_t *bytes, size_t n, struct qrn_error *err);

static void replay(const char *folder, int (*target)(const uint8_t *, size_t), opener open_it)
{
    DIR *dir = opendir(folder);
    int n_good = 0, n_bad = 0;
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir)) != NULL;) {
        char path[512];
        size_t n;
        if (e->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        uint8_t *bytes = read_file(path, &n);
        assert_non_null(bytes);
        assert_int_equal(target(bytes, n), 0);
        struct qrn_error err = {0};
        const enum qrn_status s = open_it(bytes, n, &err);
        const bool good = e->d_name[0] == 'y';
        if ((s == QRN_OK) != good) fail_msg("%s: %s %s", path, qrn_status_name(s), err.text);
        if (!good) assert_true(err.text[0]);
        n_good += good;
        n_bad += !good;
        free(bytes);
    }
    closedir(dir);
    assert_true(n_good >= 2 && n_bad >= 5);
}

static enum qrn_status open_gguf(const uint8_t *bytes, size_t n, struct qrn_error *err)
{
    const struct memory_file file = {NULL, bytes, n};
    struct memory_source memory = {&file, 1, true, 0, false};
    const struct qrn_source source = memory_source_interface(&memory);
    struct qrn_gguf g;
    struct qrn_model_config c;
    enum qrn_status s = qrn_gguf_open("m-00001-of-00002.gguf", &source, NULL, &g, err);
    if (s != QRN_OK) return s;
    s = qrn_config_from_gguf(&g, NULL, &c, err);
    if (s == QRN_OK) qrn_config_free(&c);
    qrn_gguf_close(&g);
    return s;
}

static enum qrn_status open_safetensors(const uint8_t *bytes, size_t n, struct qrn_error *err)
{
    const bool is_index = n && bytes[0] == '{';
    const struct memory_file files[] = {
        {is_index ? "model.safetensors.index.json" : "model.safetensors", bytes, n},
        {NULL, shard, sizeof shard - 1}};
    struct memory_source memory = {files, is_index ? 2 : 1, true, 0, false};
    const struct qrn_source source = memory_source_interface(&memory);
    struct qrn_safetensors st;
    const enum qrn_status s = qrn_safetensors_open_dir(NULL, &source, NULL, &st, err);
    if (s == QRN_OK) qrn_safetensors_close(&st);
    return s;
}

static enum qrn_status open_config(const uint8_t *bytes, size_t n, struct qrn_error *err)
{
    const char *text = (const char *)bytes, *end = n ? memchr(text, '\0', n) : NULL;
    const size_t n_text = end ? (size_t)(end - text) : n;
    struct qrn_model_config c;
    const enum qrn_status s = qrn_config_from_hf(text, n_text, end ? end + 1 : NULL,
                                                 end ? n - n_text - 1 : 0, NULL, &c, err);
    if (s == QRN_OK) qrn_config_free(&c);
    return s;
}

static void gguf(void **state)
{
    (void)state;
    replay("fuzz/corpus/gguf", fuzz_gguf, open_gguf);
}

static void safetensors(void **state)
{
    (void)state;
    replay("fuzz/corpus/safetensors", fuzz_safetensors, open_safetensors);
}

static void config(void **state)
{
    (void)state;
    replay("fuzz/corpus/config", fuzz_config, open_config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(gguf), cmocka_unit_test(safetensors),
                                       cmocka_unit_test(config)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
