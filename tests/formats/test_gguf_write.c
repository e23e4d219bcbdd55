/* SPDX-License-Identifier: MIT
 * GGUF: writing what was read, made up and by llama.cpp; what cannot be written. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "formats/gguf.h"
#include "support/gguf_bytes.h"
#include "support/shared.h"
#include "support/temp.h"

static void copy_all(const struct qrn_gguf *g, const char *path)
{
    struct qrn_gguf_writer *w;
    struct qrn_error e = {0};
    assert_int_equal(qrn_gguf_writer_create(path, NULL, &w, &e), QRN_OK);
    for (size_t i = 0; i < g->n_values; i++) qrn_gguf_write_value(w, &g->values[i]);
    for (size_t i = 0; i < g->archive.n_tensors; i++) {
        const struct qrn_archive_tensor *t = &g->archive.tensors[i];
        if (t->dtype != QRN_DTYPE_COUNT)
            qrn_gguf_write_tensor(w, t->name, t->dtype, t->n_dims, t->shape);
    }
    for (size_t i = 0; i < g->archive.n_tensors; i++) {
        const struct qrn_archive_tensor *t = &g->archive.tensors[i];
        for (size_t at = 0; at < t->n_bytes; at += 100) /* cut anyhow */
            qrn_gguf_write_data(w, t->data + at, t->n_bytes - at < 100 ? t->n_bytes - at : 100);
    }
    if (qrn_gguf_writer_finish(w, &e) != QRN_OK) fail_msg("%s", e.text);
}

static void assert_same_value(const struct qrn_gguf_value *a, const struct qrn_gguf_value *b)
{
    assert_int_equal(a->key.n_bytes, b->key.n_bytes);
    assert_memory_equal(a->key.bytes, b->key.bytes, a->key.n_bytes);
    assert_int_equal(a->type, b->type);
    if (a->type == QRN_GGUF_STRING) {
        assert_int_equal(a->as.string.n_bytes, b->as.string.n_bytes);
        assert_memory_equal(a->as.string.bytes, b->as.string.bytes, a->as.string.n_bytes);
    } else if (a->type == QRN_GGUF_ARRAY) {
        assert_int_equal(a->element, b->element);
        assert_int_equal(a->as.array.n, b->as.array.n);
        if (a->as.array.n && a->element != QRN_GGUF_STRING)
            assert_int_equal(a->as.array.bytes[0], b->as.array.bytes[0]);
        if (a->element == QRN_GGUF_STRING) {
            struct qrn_span *s = calloc(a->as.array.n, sizeof *s);
            struct qrn_span *t = calloc(a->as.array.n, sizeof *t);
            assert_true(qrn_gguf_strings(a, s, a->as.array.n));
            assert_true(qrn_gguf_strings(b, t, a->as.array.n));
            for (uint64_t i = 0; i < a->as.array.n; i++) {
                assert_int_equal(s[i].n_bytes, t[i].n_bytes);
                if (s[i].n_bytes) assert_memory_equal(s[i].bytes, t[i].bytes, s[i].n_bytes);
            }
            free(s);
            free(t);
        }
    } else {
        assert_int_equal(a->as.u, b->as.u);
    }
}

static void assert_same(const struct qrn_gguf *a, const struct qrn_gguf *b)
{
    assert_int_equal(a->n_values, b->n_values);
    for (size_t i = 0; i < a->n_values; i++) assert_same_value(&a->values[i], &b->values[i]);
    size_t n_known = 0;
    for (size_t i = 0; i < a->archive.n_tensors; i++) {
        const struct qrn_archive_tensor *t = &a->archive.tensors[i];
        if (t->dtype == QRN_DTYPE_COUNT) continue;
        const struct qrn_archive_tensor *u = qrn_archive_find(&b->archive, t->name);
        n_known++;
        assert_non_null(u);
        assert_int_equal(t->dtype, u->dtype);
        assert_int_equal(t->n_dims, u->n_dims);
        assert_memory_equal(t->shape, u->shape, sizeof t->shape);
        assert_int_equal(t->n_bytes, u->n_bytes);
        if (t->n_bytes) assert_memory_equal(t->data, u->data, t->n_bytes);
    }
    assert_int_equal(n_known, b->archive.n_tensors);
}

static void writes_what_it_reads(void **state)
{
    (void)state;
    struct gguf_bytes b = gguf_toy();
    struct qrn_gguf g, copy;
    struct qrn_error e = {0};
    assert_int_equal(gguf_open_bytes(&b, &g, NULL), QRN_OK);
    const char *path = temp_path("copy.gguf");
    copy_all(&g, path);
    if (qrn_gguf_open(path, NULL, NULL, &copy, &e) != QRN_OK) fail_msg("%s", e.text);
    assert_same(&g, &copy);
    qrn_gguf_close(&copy);
    qrn_gguf_close(&g);
    free(b.bytes);
}

static void writes_each_kind_of_value(void **state)
{
    (void)state;
    struct qrn_gguf_writer *w;
    const char *path = temp_path("kinds.gguf");
    const struct qrn_span words[] = {{"one", 3}, {"", 0}, {"three", 5}};
    const int32_t numbers[] = {-1, 2};
    const bool bools[] = {true, false, true};
    assert_int_equal(qrn_gguf_writer_create(path, NULL, &w, NULL), QRN_OK);
    qrn_gguf_write_u32(w, "general.alignment", 64);
    qrn_gguf_write_f32(w, "f", 0.5f);
    qrn_gguf_write_bool(w, "b", true);
    qrn_gguf_write_string(w, "s", words[0]);
    qrn_gguf_write_i32s(w, "n", numbers, 2);
    qrn_gguf_write_bools(w, "bb", bools, 3);
    qrn_gguf_write_strings(w, "ss", words, 3);
    qrn_gguf_write_tensor(w, "scalar", QRN_F32, 0, NULL);
    qrn_gguf_write_tensor(w, "none", QRN_Q8_0, 2, (const int64_t[]){0, 32});
    qrn_gguf_write_tensor(w, "last", QRN_F16, 2, (const int64_t[]){3, 5});
    qrn_gguf_write_data(w, "0123ABCDEFGHIJKLMNOPQRSTUVWXYZabcd", 34);
    assert_int_equal(qrn_gguf_writer_finish(w, NULL), QRN_OK);

    struct stat st;
    struct qrn_gguf g;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size % 64, 0); /* the last tensor is padded too */
    assert_int_equal(qrn_gguf_open(path, NULL, NULL, &g, NULL), QRN_OK);
    double f;
    int64_t i;
    assert_true(qrn_gguf_f64(&g, "f", &f) && f == 0.5);
    assert_true(qrn_gguf_i64(&g, "b", &i) && i == 1);
    assert_true(qrn_gguf_array_i64(qrn_gguf_find(&g, "n"), 0, &i) && i == -1);
    assert_true(qrn_gguf_array_i64(qrn_gguf_find(&g, "bb"), 1, &i) && i == 0);
    struct qrn_span s[3];
    assert_true(qrn_gguf_strings(qrn_gguf_find(&g, "ss"), s, 3));
    assert_memory_equal(s[2].bytes, "three", 5);
    const struct qrn_archive_tensor *t = qrn_archive_find(&g.archive, "last");
    assert_int_equal(t->shape[0], 3);
    assert_memory_equal(t->data, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcd", 30);
    assert_memory_equal(qrn_archive_find(&g.archive, "scalar")->data, "0123", 4);
    qrn_gguf_close(&g);
}

static void writer_refuses(void **state)
{
    (void)state;
    const char *path = temp_path("bad.gguf");
    static const int64_t shape[] = {2, 32, 1, 1, 1};
    static const char long_text[] =
        "0123456789012345678901234567890123456789012345678901234567890123";
    for (int i = 0; i < 10; i++) {
        struct qrn_gguf_writer *w;
        struct qrn_error e = {0};
        struct stat st;
        assert_int_equal(qrn_gguf_writer_create(path, NULL, &w, NULL), QRN_OK);
        const char *text = NULL;
        switch (i) {
        case 0:
            qrn_gguf_write_tensor(w, "a", QRN_U8, 1, shape);
            text = "cannot be in a GGUF";
            break;
        case 1:
            qrn_gguf_write_tensor(w, "a", QRN_DTYPE_COUNT, 1, shape);
            text = "unknown";
            break;
        case 2:
            qrn_gguf_write_tensor(w, "a", QRN_F32, 5, shape);
            text = "5 dimensions";
            break;
        case 3:
            qrn_gguf_write_tensor(w, "a", QRN_Q8_0, 1, shape);
            text = "whole blocks";
            break;
        case 4:
            qrn_gguf_write_tensor(w, long_text, QRN_F32, 1, shape);
            text = "64 bytes";
            break;
        case 5:
            qrn_gguf_write_tensor(w, "a", QRN_F32, 1, (const int64_t[]){-1});
            text = "whole blocks";
            break;
        case 6:
            qrn_gguf_write_data(w, "abc", 3);
            text = "3 bytes more than the 0 tensors";
            break;
        case 7:
            qrn_gguf_write_tensor(w, "a", QRN_F32, 1, shape);
            qrn_gguf_write_data(w, "abc", 3);
            text = "tensor 1 of 1 still wants 5 bytes";
            break;
        case 8:
            qrn_gguf_write_data(w, "", 0);
            qrn_gguf_write_bool(w, "late", true);
            text = "key \"late\" comes after tensor data";
            break;
        case 9:
            qrn_gguf_write_u32(w, "general.alignment", 3);
            text = "power of two";
            break;
        }
        assert_int_not_equal(qrn_gguf_writer_finish(w, &e), QRN_OK);
        if (!strstr(e.text, text)) fail_msg("case %d: %s", i, e.text);
        assert_int_equal(stat(path, &st), -1); /* nothing is left */
    }
    struct qrn_gguf_writer *w;
    assert_int_equal(qrn_gguf_writer_create(temp_path("no/folder"), NULL, &w, NULL), QRN_ERR_IO);
}

static void reads_real_files(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        size_t n_tensors, n_values;
    } files[] = {
        {"models/gguf/fairy-Q2_K.gguf", 108, 33},
        {"models/gguf/fairy-Q4_0.gguf", 108, 33},
        {"models/gguf/fairy-Q4_K_M.gguf", 108, 33},
        {"models/gguf/fairy-Q8_0.gguf", 108, 33},
        {"models/gguf/moe_small-Q4_K_M.gguf", 38, 36},
        {"models/gguf/next_small-Q4_K_M.gguf", 37, 36},
    };
    if (!shared_path(files[0].path)) skip();
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct qrn_gguf g, copy;
        struct qrn_error e = {0};
        if (qrn_gguf_open(shared_path(files[i].path), NULL, NULL, &g, &e) != QRN_OK)
            fail_msg("%s", e.text);
        assert_int_equal(g.archive.n_tensors, files[i].n_tensors);
        assert_int_equal(g.n_values, files[i].n_values);
        for (size_t k = 0; k < g.archive.n_tensors; k++)
            assert_int_not_equal(g.archive.tensors[k].dtype, QRN_DTYPE_COUNT);
        const char *path = temp_path("real.gguf");
        copy_all(&g, path);
        if (qrn_gguf_open(path, NULL, NULL, &copy, &e) != QRN_OK) fail_msg("%s", e.text);
        assert_same(&g, &copy);
        assert_int_equal(copy.files[0].n_bytes, g.files[0].n_bytes); /* the same padding */
        qrn_gguf_close(&copy);
        qrn_gguf_close(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_what_it_reads),
        cmocka_unit_test(writes_each_kind_of_value),
        cmocka_unit_test(writer_refuses),
        cmocka_unit_test(reads_real_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
