/* SPDX-License-Identifier: MIT
 * safetensors: files and sharded sets, refusals by name, writing. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "formats/safetensors.h"
#include "support/memory_source.h"
#include "support/shared.h"
#include "support/temp.h"

/* The file of a header and n_data bytes of data, malloced. */
static void *make_file(const char *header, size_t n_data, size_t *n_bytes)
{
    const size_t n = strlen(header);
    uint8_t *bytes = malloc(8 + n + n_data + 1);
    for (int i = 0; i < 8; i++) bytes[i] = (uint8_t)((uint64_t)n >> (8 * i));
    memcpy(bytes + 8, header, n);
    for (size_t i = 0; i < n_data; i++) bytes[8 + n + i] = (uint8_t)i;
    *n_bytes = 8 + n + n_data;
    return bytes;
}

static enum qrn_status open_bytes(const void *bytes, size_t n, struct qrn_safetensors *st,
                                  struct qrn_error *err)
{
    static struct memory_file file;
    static struct memory_source memory;
    static struct qrn_source source;
    file = (struct memory_file){NULL, bytes, n};
    memory = (struct memory_source){&file, 1, false, 0, false};
    source = memory_source_interface(&memory);
    return qrn_safetensors_open("m", &source, NULL, st, err);
}

static void reads_a_file(void **state)
{
    (void)state;
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\"},"
        "\"b\":{\"dtype\":\"F8_E4M3\",\"shape\":[3],\"data_offsets\":[24,27]},"
        "\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24],\"more\":1},"
        "\"s\":{\"dtype\":\"BOOL\",\"shape\":[],\"data_offsets\":[27,28]},"
        "\"n\":{\"dtype\":\"I64\",\"shape\":[0,7],\"data_offsets\":[28,28]},"
        "\"x\":{\"dtype\":\"F4\",\"shape\":[4],\"data_offsets\":[28,30]}}   ";
    size_t n;
    void *bytes = make_file(header, 30, &n);
    struct qrn_safetensors st;
    struct qrn_error e = {0};
    if (open_bytes(bytes, n, &st, &e) != QRN_OK) fail_msg("%s", e.text);
    assert_int_equal(st.archive.n_tensors, 5);
    const struct qrn_archive_tensor *t = qrn_archive_find(&st.archive, "a");
    assert_int_equal(t->dtype, QRN_F32);
    assert_int_equal(t->n_dims, 2);
    assert_int_equal(t->shape[0], 2);
    assert_int_equal(t->n_bytes, 24);
    t = qrn_archive_find(&st.archive, "b");
    assert_int_equal(t->data[0], 24);
    assert_int_equal(qrn_archive_find(&st.archive, "s")->n_dims, 0);
    t = qrn_archive_find(&st.archive, "x");
    assert_int_equal(t->dtype, QRN_DTYPE_COUNT);
    assert_string_equal(t->type_name, "F4");
    assert_int_equal(t->n_bytes, 2);
    qrn_safetensors_close(&st);
    qrn_safetensors_close(&st);
    free(bytes);
}

#define T(name, dtype, shape, offsets)                                                             \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" offsets "]}"

static void refuses(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        size_t n_data;
        const char *text;
    } cases[] = {
        {"", 0, "does not start with '{'"},
        {" {}", 0, "does not start with '{'"},
        {"{", 0, "JSON, line 1"},
        {"{} x", 0, "JSON, line 1"},
        {"{\"a\":1}", 0, "the entry of tensor \"a\" is not an object"},
        {"{\"a\\u0000b\":1}", 0, "no character, or of NUL"},
        {"{\"\xff\":1}", 0, "string is not UTF-8"},
        {"{" T("a", "F32", "1", "0,4") "," T("a", "F32", "1", "4,8") "}", 8,
         "key \"a\" occurs twice"},
        {"{\"__metadata__\":[]}", 0, "__metadata__ is not an object"},
        {"{\"__metadata__\":{\"a\":1}}", 0, "the value of \"a\" is not a string"},
        {"{\"a\":{\"shape\":[],\"data_offsets\":[0,4]}}", 4, "dtype is missing"},
        {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "shape is missing"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "data_offsets is missing"},
        {"{\"a\":{\"dtype\":1,\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
         "dtype is missing or not"},
        {"{" T("a", "F32", "1.0", "0,4") "}", 4, "shape[0] is not an integer"},
        {"{" T("a", "F32", "-1", "0,4") "}", 4, "shape[0] is not an integer of 0 or more"},
        {"{" T("a", "F32", "1,1,1,1,1,1,1,1,1", "0,4") "}", 4, "9 dimensions, the limit is 8"},
        {"{" T("a", "F32", "4294967296,4294967296", "0,4") "}", 4, "overflows at shape[1]"},
        {"{" T("a", "F32", "0,4294967296,4294967296", "0,0") "}", 0, NULL},
        {"{" T("a", "F32", "4294967296,1073741824", "0,4") "}", 4, "size in bytes overflows"},
        {"{" T("a", "F32", "99999999999999999999", "0,4") "}", 4, "shape[0] is not an integer"},
        {"{" T("a", "F32", "2", "0,4") "}", 4, "2 elements of F32 take 8 bytes"},
        {"{" T("a", "F32", "1", "0,4,8") "}", 4, "not two integers"},
        {"{" T("a", "F32", "1", "0,4.0") "}", 4, "not two integers"},
        {"{" T("a", "F32", "1", "4,0") "}", 4, "not inside the 4 bytes"},
        {"{" T("a", "F32", "1", "-4,0") "}", 4, "not inside the 4 bytes"},
        {"{" T("a", "F32", "2", "0,8") "}", 4, "[0, 8] are not inside the 4 bytes of data"},
        {"{" T("a", "F32", "1", "0,4") "," T("b", "F32", "1", "2,6") "}", 6,
         "inside the one that ends at"},
        {"{" T("a", "F32", "1", "0,4") "," T("b", "F32", "1", "5,9") "}", 9,
         "behind a hole from byte 4"},
        {"{" T("a", "F32", "1", "1,5") "}", 5, "behind a hole from byte 0"},
        {"{" T("a", "F32", "1", "0,4") "}", 5, "1 bytes of data belong to no tensor"},
        {"{" T("a", "0123456789012345678901234567890123", "1", "0,4") "}", 4, "dtype \"01234567"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t n;
        void *bytes = make_file(cases[i].header, cases[i].n_data, &n);
        struct qrn_safetensors st;
        struct qrn_error e = {0};
        const enum qrn_status s = open_bytes(bytes, n, &st, &e);
        if (cases[i].text ? s != QRN_ERR_FORMAT || !strstr(e.text, cases[i].text) : s != QRN_OK)
            fail_msg("case %zu: %s, \"%s\", wants \"%s\"", i, qrn_status_name(s), e.text,
                     cases[i].text ? cases[i].text : "success");
        if (s == QRN_OK) qrn_safetensors_close(&st);
        free(bytes);
    }
}

static void refuses_headers(void **state)
{
    (void)state;
    struct qrn_safetensors st;
    struct qrn_error e = {0};
    assert_int_equal(open_bytes("", 0, &st, &e), QRN_ERR_FORMAT);
    assert_non_null(strstr(e.text, "0 bytes, wants 8 and a header"));
    assert_int_equal(open_bytes("\3\0\0\0\0\0\0\0{}", 10, &st, &e), QRN_ERR_FORMAT);
    assert_non_null(strstr(e.text, "header of 3 bytes ends outside the file of 10"));
    assert_int_equal(open_bytes("\377\377\377\377\377\377\377\377{}", 10, &st, &e), QRN_ERR_FORMAT);
    assert_non_null(strstr(e.text, "header of 18446744073709551615 bytes, the limit is 100000000"));
    assert_int_equal(qrn_safetensors_open(temp_path("none"), NULL, NULL, &st, &e), QRN_ERR_IO);
}

/* --- directories --- */

static const char shard_1[] = "{" T("a", "F32", "1", "0,4") "," T("b", "I8", "2", "4,6") "}";
static const char shard_2[] = "{" T("c", "U16", "1", "0,2") "}";

static void check_index(const char *index, const char *text)
{
    size_t n1, n2;
    void *f1 = make_file(shard_1, 6, &n1), *f2 = make_file(shard_2, 2, &n2);
    const struct memory_file files[] = {
        {"model.safetensors.index.json", index, strlen(index)}, {"s1", f1, n1}, {"s2", f2, n2}};
    struct memory_source memory = {files, 3, false, 0, false};
    const struct qrn_source source = memory_source_interface(&memory);
    struct qrn_safetensors st;
    struct qrn_error e = {0};
    const enum qrn_status s = qrn_safetensors_open_dir(NULL, &source, NULL, &st, &e);
    if (text && (s == QRN_OK || !strstr(e.text, text)))
        fail_msg("%s: \"%s\", wants \"%s\"", index, e.text, text);
    if (!text) {
        if (s != QRN_OK) fail_msg("%s", e.text);
        assert_int_equal(st.archive.n_tensors, 3);
        assert_int_equal(st.n_files, 2);
        assert_int_equal(qrn_archive_find(&st.archive, "c")->dtype, QRN_U16);
        qrn_safetensors_close(&st);
    }
    assert_int_equal(memory.n_open, 0);
    free(f1);
    free(f2);
}

static void reads_and_refuses_sets(void **state)
{
    (void)state;
    check_index("{\"weight_map\":{\"a\":\"s1\",\"b\":\"s1\",\"c\":\"s2\"}}", NULL);
    check_index("{\"metadata\":{},\"weight_map\":{\"c\":\"s2\",\"a\":\"s1\"}}", NULL);
    check_index("{}", "weight_map is missing");
    check_index("[]", "weight_map is missing");
    check_index("{\"weight_map\":[]}", "weight_map is missing or not an object");
    check_index("{\"weight_map\":{\"a\":1}}", "the shard of tensor \"a\" is not a string");
    check_index("{\"weight_map\":{\"a\":\"../s1\"}}", "wants a plain file name");
    check_index("{\"weight_map\":{\"a\":\"/s1\"}}", "wants a plain file name");
    check_index("{\"weight_map\":{\"a\":\"..\"}}", "wants a plain file name");
    check_index("{\"weight_map\":{\"a\":\"\"}}", "wants a plain file name");
    check_index("{\"weight_map\":{\"a\":\"s3\"}}", "s3: the source cannot open it");
    check_index("{\"weight_map\":{\"a\":\"s1\",\"c\":\"s1\"}}",
                "tensor \"c\" is in \"s1\", it is not there");
    check_index("{\"weight_map\":{\"a\":\"s1\",\"b\":\"s2\"}}",
                "tensor \"b\" is in \"s2\", it is in another shard");
    check_index("{\"weight_map\":{\"a\":\"model.safetensors.index.json\"}}",
                "model.safetensors.index.json: not a safetensors file");
    check_index("{\"weight_map\":", "model.safetensors.index.json: JSON, line 1");
}

static void directory_without_index(void **state)
{
    (void)state;
    size_t n;
    void *bytes = make_file(shard_1, 6, &n);
    const struct memory_file files[] = {{"model.safetensors", bytes, n}};
    struct memory_source memory = {files, 1, true, 0, false};
    const struct qrn_source source = memory_source_interface(&memory);
    struct qrn_safetensors st;
    struct qrn_error e = {0};
    assert_int_equal(qrn_safetensors_open_dir(NULL, &source, NULL, &st, &e), QRN_OK);
    assert_int_equal(st.archive.n_tensors, 2);
    qrn_safetensors_close(&st);
    memory.n_files = 0;
    assert_int_equal(qrn_safetensors_open_dir(NULL, &source, NULL, &st, &e), QRN_ERR_IO);
    assert_non_null(strstr(e.text, "without model.safetensors.index.json: model.safetensors"));
    free(bytes);
}

static void reads_fairy(void **state)
{
    (void)state;
    struct qrn_safetensors st;
    struct qrn_error e = {0};
    if (qrn_safetensors_open_dir("models/fairy", NULL, NULL, &st, &e) != QRN_OK)
        fail_msg("%s", e.text);
    assert_int_equal(st.n_files, 2);
    assert_int_equal(st.archive.n_tensors, 108);
    const struct qrn_archive_tensor *t = qrn_archive_find(&st.archive, "model.embed_tokens.weight");
    assert_int_equal(t->dtype, QRN_BF16);
    assert_int_equal(t->shape[0], 4096);
    assert_int_equal(t->shape[1], 256);
    size_t n = 0;
    for (size_t i = 0; i < st.archive.n_tensors; i++) n += st.archive.tensors[i].n_bytes;
    assert_int_equal(n, 22106208); /* metadata.total_size of the index */
    qrn_safetensors_close(&st);
}

static void reads_real_directories(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        size_t n_tensors;
    } dirs[] = {{"models/fairy", 108},
                {"models/moe_small", 36},
                {"models/next_small", 78},
                {"models/fairy-mlx-4bit", 234},
                {"models/fairy-mlx-6bit", 234}};
    if (!shared_path(dirs[0].path)) skip();
    for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++) {
        struct qrn_safetensors st;
        struct qrn_error e = {0};
        if (qrn_safetensors_open_dir(shared_path(dirs[i].path), NULL, NULL, &st, &e) != QRN_OK)
            fail_msg("%s", e.text);
        assert_int_equal(st.archive.n_tensors, dirs[i].n_tensors);
        qrn_safetensors_close(&st);
    }
}

/* --- writing --- */

static void writes_and_reads_back(void **state)
{
    (void)state;
    static const float f[6] = {1, 2, 3, 4, 5, 6};
    static const int32_t n[2] = {7, -8};
    static const double d[1] = {0.5};
    const struct qrn_archive_tensor tensors[] = {
        {.name = "z",
         .dtype = QRN_F32,
         .n_dims = 2,
         .shape = {2, 3},
         .data = (const uint8_t *)f,
         .n_bytes = sizeof f},
        {.name = "quote\"back\\slash\nline",
         .dtype = QRN_I32,
         .n_dims = 1,
         .shape = {2},
         .data = (const uint8_t *)n,
         .n_bytes = sizeof n},
        {.name = "d",
         .dtype = QRN_F64,
         .n_dims = 0,
         .data = (const uint8_t *)d,
         .n_bytes = sizeof d},
        {.name = "none", .dtype = QRN_F8_E4M3, .n_dims = 2, .shape = {0, 5}},
    };
    const char *path = temp_path("w.safetensors");
    struct qrn_error e = {0};
    if (qrn_safetensors_write(path, tensors, 4, NULL, &e) != QRN_OK) fail_msg("%s", e.text);
    struct qrn_safetensors st;
    if (qrn_safetensors_open(path, NULL, NULL, &st, &e) != QRN_OK) fail_msg("%s", e.text);
    assert_int_equal(st.archive.n_tensors, 4);
    assert_int_equal(st.files[0].bytes[0] % 8, 0);
    for (int i = 0; i < 4; i++) {
        const struct qrn_archive_tensor *t = qrn_archive_find(&st.archive, tensors[i].name);
        assert_non_null(t);
        assert_int_equal(t->dtype, tensors[i].dtype);
        assert_int_equal(t->n_dims, tensors[i].n_dims);
        assert_memory_equal(t->shape, tensors[i].shape, sizeof t->shape);
        assert_int_equal(t->n_bytes, tensors[i].n_bytes);
        if (t->n_bytes) assert_memory_equal(t->data, tensors[i].data, t->n_bytes);
    }
    qrn_safetensors_close(&st);
    assert_int_equal(qrn_safetensors_write(path, NULL, 0, NULL, NULL), QRN_OK);
    assert_int_equal(qrn_safetensors_open(path, NULL, NULL, &st, &e), QRN_OK);
    assert_int_equal(st.archive.n_tensors, 0);
    qrn_safetensors_close(&st);
}

static void writer_refuses(void **state)
{
    (void)state;
    struct qrn_error e = {0};
    const char *path = temp_path("bad.safetensors");
    struct qrn_archive_tensor t = {.name = "t",
                                   .dtype = QRN_Q4_0,
                                   .n_dims = 1,
                                   .shape = {32},
                                   .data = (const uint8_t *)"",
                                   .n_bytes = 18};
    assert_int_equal(qrn_safetensors_write(path, &t, 1, NULL, &e), QRN_ERR_DTYPE);
    assert_string_equal(e.text, "tensor \"t\": type q4_0 cannot be in a safetensors file");
    t.dtype = QRN_F32;
    assert_int_equal(qrn_safetensors_write(path, &t, 1, NULL, &e), QRN_ERR_SHAPE);
    assert_string_equal(e.text, "tensor \"t\" has 18 bytes of data, its shape wants 128");
    t.shape[0] = INT64_MAX;
    assert_int_equal(qrn_safetensors_write(path, &t, 1, NULL, &e), QRN_ERR_SHAPE);
    t.n_dims = 9;
    assert_int_equal(qrn_safetensors_write(path, &t, 1, NULL, &e), QRN_ERR_SHAPE);
    assert_int_equal(qrn_safetensors_write(temp_path("no/dir"), NULL, 0, NULL, &e), QRN_ERR_IO);
    assert_null(read_file(path, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_a_file),
        cmocka_unit_test(refuses),
        cmocka_unit_test(refuses_headers),
        cmocka_unit_test(reads_and_refuses_sets),
        cmocka_unit_test(directory_without_index),
        cmocka_unit_test(reads_fairy),
        cmocka_unit_test(reads_real_directories),
        cmocka_unit_test(writes_and_reads_back),
        cmocka_unit_test(writer_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
