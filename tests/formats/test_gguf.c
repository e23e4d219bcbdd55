/* SPDX-License-Identifier: MIT
 * GGUF: reading good files and sets, refusing bad ones by name. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "formats/gguf.h"
#include "support/counting_allocator.h"
#include "support/gguf_bytes.h"
#include "support/memory_source.h"

static void reads_the_toy(void **state)
{
    (void)state;
    struct gguf_bytes b = gguf_toy();
    struct qrn_gguf g;
    struct qrn_error e = {0};
    if (gguf_open_bytes(&b, &g, &e) != QRN_OK) fail_msg("%s", e.text);
    assert_int_equal(g.n_values, 31);
    assert_int_equal(g.archive.n_tensors, 12);

    const struct qrn_archive_tensor *t = qrn_archive_find(&g.archive, "blk.1.ffn_gate_exps.weight");
    assert_non_null(t);
    assert_int_equal(t->n_dims, 3);
    assert_int_equal(t->shape[0], 2); /* outermost first */
    assert_int_equal(t->shape[2], 256);
    assert_int_equal(t->dtype, QRN_Q4_K);
    assert_string_equal(t->type_name, "q4_k");
    assert_int_equal(t->n_bytes, 4 * 144);
    t = qrn_archive_find(&g.archive, "token_embd.weight");
    assert_int_equal(t->data[0], 11); /* the first byte of the data section */
    t = qrn_archive_find(&g.archive, "blk.1.strange");
    assert_int_equal(t->dtype, QRN_DTYPE_COUNT);
    assert_string_equal(t->type_name, "type 77");
    assert_int_equal(t->n_bytes, 0);
    assert_null(t->data);
    qrn_gguf_close(&g);
    qrn_gguf_close(&g);
    free(b.bytes);
}

static void reads_values_of_every_type(void **state)
{
    (void)state;
    struct gguf_bytes b = gguf_toy();
    struct qrn_gguf g;
    assert_int_equal(gguf_open_bytes(&b, &g, NULL), QRN_OK);
    static const struct {
        const char *key;
        int64_t value;
    } integers[] = {{"test.u8", 200}, {"test.i8", -2},  {"test.i16", -2},
                    {"test.bool", 1}, {"test.i64", -5}, {"qwen35.block_count", 2}};
    int64_t i;
    double f;
    for (size_t k = 0; k < sizeof integers / sizeof *integers; k++) {
        assert_true(qrn_gguf_i64(&g, integers[k].key, &i));
        assert_int_equal(i, integers[k].value);
        assert_true(qrn_gguf_f64(&g, integers[k].key, &f));
        assert_true(f == (double)integers[k].value);
    }
    assert_false(qrn_gguf_i64(&g, "test.u64", &i)); /* out of range */
    assert_true(qrn_gguf_f64(&g, "test.u64", &f));
    assert_true(f == 0x1p64);
    assert_true(qrn_gguf_f64(&g, "test.f64", &f));
    assert_true(f == 1.5);
    assert_false(qrn_gguf_i64(&g, "test.f64", &i)); /* a float is not an integer */
    assert_false(qrn_gguf_i64(&g, "general.architecture", &i));
    assert_false(qrn_gguf_f64(&g, "general.architecture", &f));
    assert_false(qrn_gguf_i64(&g, "absent", &i));
    struct qrn_span s;
    assert_true(qrn_gguf_string(&g, "general.architecture", &s));
    assert_int_equal(s.n_bytes, 6);
    assert_memory_equal(s.bytes, "qwen35", 6);
    assert_false(qrn_gguf_string(&g, "test.u8", &s));

    const struct qrn_gguf_value *v = qrn_gguf_find(&g, "tokenizer.ggml.tokens");
    struct qrn_span all[8];
    assert_int_equal(v->as.array.n, 8);
    assert_true(qrn_gguf_strings(v, all, 8));
    assert_memory_equal(all[3].bytes, "ab", 2);
    assert_int_equal(all[7].n_bytes, 0);
    assert_false(qrn_gguf_array_i64(v, 0, &i));
    v = qrn_gguf_find(&g, "tokenizer.ggml.token_type");
    assert_true(qrn_gguf_array_i64(v, 2, &i));
    assert_int_equal(i, 3);
    assert_true(qrn_gguf_array_f64(v, 7, &f));
    assert_true(f == 5);
    assert_false(qrn_gguf_array_i64(v, 8, &i));
    assert_false(qrn_gguf_strings(v, all, 8));
    v = qrn_gguf_find(&g, "qwen35.attention.recurrent_layers");
    assert_true(qrn_gguf_array_i64(v, 0, &i));
    assert_int_equal(i, 1);
    qrn_gguf_close(&g);
    free(b.bytes);
}

/* --- what is refused --- */

static void truncated(struct gguf_bytes *g)
{
    gguf_put_header(g, 3, 0, 1);
    gguf_put_u32(g, "a.b", 1);
    g->n -= 2;
}
static void no_magic(struct gguf_bytes *g)
{
    gguf_put(g, "GGML\3\0\0\0", 8);
}
static void empty(struct gguf_bytes *g)
{
    gguf_put(g, "", 0);
}
static void short_header(struct gguf_bytes *g)
{
    gguf_put(g, "GGUF\3\0\0\0\1\0", 10);
}
static void version_1(struct gguf_bytes *g)
{
    gguf_put_header(g, 1, 0, 0);
}
static void version_4(struct gguf_bytes *g)
{
    gguf_put_header(g, 4, 0, 0);
}
static void big_endian(struct gguf_bytes *g)
{
    gguf_put_header(g, 0x03000000, 0, 0);
}
static void many_tensors(struct gguf_bytes *g)
{
    gguf_put_header(g, 3, UINT64_MAX, 0);
}
static void many_keys(struct gguf_bytes *g)
{
    gguf_put_header(g, 3, 0, (uint64_t)1 << 60);
}

static void long_key(struct gguf_bytes *g)
{
    gguf_put_header(g, 3, 0, 1);
    gguf_put_uint(g, UINT64_MAX, 8);
    gguf_put(g, "abcdefghijklm", 13);
}
static void empty_key(struct gguf_bytes *g)
{
    gguf_put_header(g, 3, 0, 1);
    gguf_put_u32(g, "", 1);
}
static void twice(struct gguf_bytes *g)
{
    gguf_put_header(g, 3, 0, 2);
    gguf_put_u32(g, "a.b", 1);
    gguf_put_u32(g, "a.b", 2);
}
static void bad_type(struct gguf_bytes *g)
{
    gguf_put_header(g, 3, 0, 1);
    gguf_put_string(g, "a.b");
    gguf_put_uint(g, 13, 4);
    gguf_put_uint(g, 0, 8);
}
static void put_array(struct gguf_bytes *g, uint32_t element, uint64_t n)
{
    gguf_put_header(g, 3, 0, 1);
    gguf_put_string(g, "a.b");
    gguf_put_uint(g, 9, 4);
    gguf_put_uint(g, element, 4);
    gguf_put_uint(g, n, 8);
    gguf_put_uint(g, 1, 8);
}
static void nested_array(struct gguf_bytes *g)
{
    put_array(g, 9, 1);
}
static void long_array(struct gguf_bytes *g)
{
    put_array(g, 10, (uint64_t)1 << 61);
}
static void array_of_cut_strings(struct gguf_bytes *g)
{
    put_array(g, 8, 1);
}
static void put_alignment(struct gguf_bytes *g, uint32_t n)
{
    gguf_put_header(g, 3, 0, 1);
    gguf_put_u32(g, "general.alignment", n);
}
static void alignment_0(struct gguf_bytes *g)
{
    put_alignment(g, 0);
}
static void alignment_48(struct gguf_bytes *g)
{
    put_alignment(g, 48);
}
static void alignment_text(struct gguf_bytes *g)
{
    gguf_put_header(g, 3, 0, 1);
    gguf_put_text(g, "general.alignment", "32");
}
static void tensor(struct gguf_bytes *g, uint32_t n_dims, uint64_t a, uint64_t b, uint32_t type,
                   uint64_t offset)
{
    const uint64_t ne[8] = {a, b, 1, 1, 1, 1, 1, 1};
    gguf_put_header(g, 3, 1, 0);
    gguf_put_tensor(g, "t", n_dims, ne, type, offset);
    gguf_put_data(g, 256);
}
static void five_dims(struct gguf_bytes *g)
{
    tensor(g, 5, 1, 1, 0, 0);
}
static void many_dims(struct gguf_bytes *g)
{
    gguf_put_header(g, 3, 1, 0);
    gguf_put_string(g, "t");
    gguf_put_uint(g, UINT32_MAX, 4);
    gguf_put_data(g, 256);
}
static void negative(struct gguf_bytes *g)
{
    tensor(g, 2, UINT64_MAX, 1, 0, 0);
}
static void overflow(struct gguf_bytes *g)
{
    tensor(g, 2, (uint64_t)1 << 32, (uint64_t)1 << 31, 0, 0);
}
static void overflow_to_0(struct gguf_bytes *g)
{
    tensor(g, 2, (uint64_t)1 << 32, (uint64_t)1 << 32, 0, 0);
}
static void byte_overflow(struct gguf_bytes *g)
{
    tensor(g, 2, (uint64_t)1 << 31, (uint64_t)1 << 31, 0, 0);
}
static void part_block(struct gguf_bytes *g)
{
    tensor(g, 2, 48, 2, 2, 0);
}
static void unaligned(struct gguf_bytes *g)
{
    tensor(g, 1, 4, 0, 0, 16);
}
static void outside(struct gguf_bytes *g)
{
    tensor(g, 1, 64, 0, 0, 32);
}
static void far_outside(struct gguf_bytes *g)
{
    tensor(g, 1, 64, 0, 0, UINT64_MAX - 31);
}
static void cut_list(struct gguf_bytes *g)
{
    gguf_put_header(g, 3, 2, 0);
    gguf_put_tensor(g, "t", 1, (const uint64_t[]){1}, 0, 0);
    gguf_put_string(g, "u");
    gguf_put_uint(g, 1, 4);
    gguf_put(g, "012345678", 9);
}
static void pair(struct gguf_bytes *g, const char *a, const char *b, uint64_t offset)
{
    gguf_put_header(g, 3, 2, 0);
    gguf_put_tensor(g, a, 1, (const uint64_t[]){16}, 0, 0);
    gguf_put_tensor(g, b, 1, (const uint64_t[]){16}, 0, offset);
    gguf_put_data(g, 128);
}
static void overlapping(struct gguf_bytes *g)
{
    pair(g, "a", "b", 32);
}
static void same_name(struct gguf_bytes *g)
{
    pair(g, "a", "a", 64);
}
static void long_name(struct gguf_bytes *g)
{
    pair(g, "a", "0123456789012345678901234567890123456789012345678901234567890123", 64);
}
static void nul_name(struct gguf_bytes *g)
{
    pair(g, "a", "bXc", 64);
    for (size_t i = 0; i < g->n; i++)
        if (g->bytes[i] == 'X') g->bytes[i] = 0;
}
static void half_a_split(struct gguf_bytes *g)
{
    gguf_put_header(g, 3, 0, 1);
    gguf_put_u16(g, "split.count", 2);
}
static void split_of_text(struct gguf_bytes *g)
{
    gguf_put_header(g, 3, 0, 1);
    gguf_put_text(g, "split.count", "2");
}

static void refuses(void **state)
{
    (void)state;
    static const struct {
        void (*make)(struct gguf_bytes *);
        enum qrn_status status;
        const char *text;
    } cases[] = {
        {empty, QRN_ERR_FORMAT, "m.gguf: not a GGUF file"},
        {no_magic, QRN_ERR_FORMAT, "not a GGUF file"},
        {short_header, QRN_ERR_FORMAT, "ends inside the header"},
        {version_1, QRN_ERR_UNSUPPORTED, "version 1"},
        {version_4, QRN_ERR_UNSUPPORTED, "version 4, wants 2 or 3"},
        {big_endian, QRN_ERR_UNSUPPORTED, "big-endian"},
        {many_tensors, QRN_ERR_FORMAT, "claims 18446744073709551615 tensors, but only 0 bytes"},
        {many_keys, QRN_ERR_FORMAT, "metadata keys"},
        {truncated, QRN_ERR_FORMAT, "the value of key \"a.b\" ends outside the file"},
        {long_key, QRN_ERR_FORMAT, "key ends outside the file"},
        {empty_key, QRN_ERR_FORMAT, "key is empty"},
        {twice, QRN_ERR_FORMAT, "key \"a.b\" occurs twice"},
        {bad_type, QRN_ERR_FORMAT, "value type 13"},
        {nested_array, QRN_ERR_FORMAT, "an array of type 9"},
        {long_array, QRN_ERR_FORMAT, "an array of 2305843009213693952 elements"},
        {array_of_cut_strings, QRN_ERR_FORMAT, "string 0 of 1 ends outside"},
        {alignment_0, QRN_ERR_FORMAT, "general.alignment is 0, wants a power of two"},
        {alignment_48, QRN_ERR_FORMAT, "general.alignment is 48"},
        {alignment_text, QRN_ERR_FORMAT, "general.alignment has value type 8"},
        {five_dims, QRN_ERR_FORMAT, "tensor \"t\" has 5 dimensions, the limit is 4"},
        {many_dims, QRN_ERR_FORMAT, "has 4294967295 dimensions"},
        {negative, QRN_ERR_FORMAT, "number of elements overflows"},
        {overflow, QRN_ERR_FORMAT, "number of elements overflows (4294967296 x 2147483648"},
        {overflow_to_0, QRN_ERR_FORMAT, "number of elements overflows"},
        {byte_overflow, QRN_ERR_FORMAT, "size in bytes overflows"},
        {part_block, QRN_ERR_FORMAT, "rows of 48 are not whole blocks of 32 (q4_0)"},
        {unaligned, QRN_ERR_FORMAT, "offset 16, which the alignment 32 does not divide"},
        {outside, QRN_ERR_FORMAT, "(256 bytes at offset 32) ends outside the data section of 256"},
        {far_outside, QRN_ERR_FORMAT, "ends outside the data section"},
        {cut_list, QRN_ERR_FORMAT, "ends inside the list of tensors"},
        {overlapping, QRN_ERR_FORMAT, "tensors \"a\" and \"b\" overlap"},
        {same_name, QRN_ERR_FORMAT, "tensor \"a\" occurs twice"},
        {long_name, QRN_ERR_FORMAT, "the name of a tensor has 64 bytes, the limit is 63"},
        {nul_name, QRN_ERR_FORMAT, "has a NUL inside"},
        {half_a_split, QRN_ERR_FORMAT, "split.count is 2, but the name does not end with"},
        {split_of_text, QRN_ERR_FORMAT, "\"split.count\" is not an integer"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gguf_bytes b = {0};
        struct qrn_gguf g;
        struct qrn_error e = {0};
        cases[i].make(&b);
        const enum qrn_status s = gguf_open_bytes(&b, &g, &e);
        if (s != cases[i].status || !strstr(e.text, cases[i].text))
            fail_msg("case %zu: %s, \"%s\", wants \"%s\"", i, qrn_status_name(s), e.text,
                     cases[i].text);
        free(b.bytes);
    }
}

/* --- split sets --- */

#define N_PARTS 3

struct set {
    struct gguf_bytes bytes[N_PARTS];
    struct memory_file files[N_PARTS];
    struct memory_source memory;
    uint16_t no[N_PARTS], count[N_PARTS];
    uint32_t n_tensors;
};

static void make_set(struct set *s)
{
    static const char *const names[] = {"x-00001-of-00003.gguf", "x-00002-of-00003.gguf",
                                        "x-00003-of-00003.gguf"};
    for (int i = 0; i < N_PARTS; i++) {
        struct gguf_bytes *b = &s->bytes[i];
        char name[8];
        gguf_put_header(b, 3, 2, 3);
        gguf_put_u16(b, "split.no", s->no[i]);
        gguf_put_u16(b, "split.count", s->count[i]);
        gguf_put_u32(b, "split.tensors.count", s->n_tensors);
        snprintf(name, sizeof name, "t%d.a", i);
        gguf_put_tensor(b, name, 1, (const uint64_t[]){8}, 0, 0);
        name[3] = 'b';
        gguf_put_tensor(b, name, 1, (const uint64_t[]){8}, 0, 32);
        gguf_put_data(b, 64);
        s->files[i] = (struct memory_file){names[i], b->bytes, b->n};
    }
    s->memory = (struct memory_source){s->files, N_PARTS, false, 0, false};
}

static enum qrn_status open_set(struct set *s, const char *name, struct qrn_gguf *g,
                                struct qrn_error *e)
{
    static struct qrn_source source;
    source = memory_source_interface(&s->memory);
    return qrn_gguf_open(name, &source, NULL, g, e);
}

static void check_set(struct set s, const char *name, const char *text)
{
    struct qrn_gguf g;
    struct qrn_error e = {0};
    make_set(&s);
    const enum qrn_status status = open_set(&s, name, &g, &e);
    if (text && (status == QRN_OK || !strstr(e.text, text))) fail_msg("%s, wants %s", e.text, text);
    if (!text) {
        if (status != QRN_OK) fail_msg("%s", e.text);
        assert_int_equal(g.archive.n_tensors, 6);
        assert_int_equal(g.n_files, 3);
        assert_int_equal(qrn_archive_find(&g.archive, "t2.b")->i_file, 2);
        assert_int_equal(qrn_archive_find(&g.archive, "t2.b")->data[0], (32 * 37 + 11) & 255);
        qrn_gguf_close(&g);
    }
    assert_int_equal(s.memory.n_open, 0);
    for (int i = 0; i < N_PARTS; i++) free(s.bytes[i].bytes);
}

static void reads_and_refuses_sets(void **state)
{
    (void)state;
    static const char first[] = "x-00001-of-00003.gguf";
    const struct set good = {.no = {0, 1, 2}, .count = {3, 3, 3}, .n_tensors = 6};
    check_set(good, first, NULL);
    check_set(good, "x-00002-of-00003.gguf", "is number 2 of a set of 3 files; open the first");
    struct set bad = good;
    bad.n_tensors = 7;
    check_set(bad, first, "split.tensors.count is 7, but the 3 files list 6 tensors");
    bad = good;
    bad.no[2] = 1;
    check_set(bad, first, "x-00003-of-00003.gguf: split.no is 1, but the name says 2");
    bad = good;
    bad.no[1] = 0; /* points back to the first */
    check_set(bad, first, "split.no is 0, but the name says 1");
    bad = good;
    bad.count[1] = 2;
    check_set(bad, first, "split.count is 2, but the first file of the set says 3");
    bad = good;
    bad.count[0] = 4;
    check_set(bad, first, "does not end with -00001-of-00004.gguf");
    bad = good;
    bad.count[0] = 65535;
    check_set(bad, first, "does not end with -00001-of-65535.gguf");
}

static void missing_and_repeated_parts(void **state)
{
    (void)state;
    struct set s = {.no = {0, 1, 2}, .count = {3, 3, 3}, .n_tensors = 6};
    struct qrn_gguf g;
    struct qrn_error e = {0};
    make_set(&s);
    s.memory.n_files = 2;
    assert_int_equal(open_set(&s, s.files[0].name, &g, &e), QRN_ERR_IO);
    assert_non_null(strstr(e.text, "x-00003-of-00003.gguf"));
    s.memory.n_files = 3;
    s.files[1].bytes = s.files[0].bytes; /* the same file under another name */
    assert_int_equal(open_set(&s, s.files[0].name, &g, &e), QRN_ERR_FORMAT);
    assert_int_equal(s.memory.n_open, 0);
    for (int i = 0; i < N_PARTS; i++) free(s.bytes[i].bytes);
}

/* Time and memory grow with the file, not faster. */
static void many_entries(void **state)
{
    (void)state;
    enum { N = 20000 };
    struct gguf_bytes b = {0};
    gguf_put_header(&b, 3, N, N);
    char name[32];
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "key.%d", i * 7919 % N);
        gguf_put_u32(&b, name, (uint32_t)i);
    }
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "t.%d", i * 7919 % N);
        gguf_put_tensor(&b, name, 1, (const uint64_t[]){8}, 0, 32 * (uint64_t)(N - 1 - i));
    }
    gguf_put_data(&b, 32 * N);
    struct counting_allocator c;
    counting_allocator_init(&c);
    const struct qrn_host host = counting_host(&c);
    struct memory_file file = {"m", b.bytes, b.n};
    struct memory_source memory = {&file, 1, true, 0, false};
    const struct qrn_source source = memory_source_interface(&memory);
    struct qrn_gguf g;
    struct qrn_error e = {0};
    if (qrn_gguf_open("m", &source, &host, &g, &e) != QRN_OK) fail_msg("%s", e.text);
    assert_non_null(qrn_archive_find(&g.archive, "t.19999"));
    assert_non_null(qrn_gguf_find(&g, "key.19999"));
    assert_true(c.peak_bytes < 5 * b.n);
    qrn_gguf_close(&g);
    assert_int_equal(c.live_bytes, 0);
    assert_int_equal(c.n_bad_frees, 0);
    free(b.bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_the_toy),
        cmocka_unit_test(reads_values_of_every_type),
        cmocka_unit_test(refuses),
        cmocka_unit_test(reads_and_refuses_sets),
        cmocka_unit_test(missing_and_repeated_parts),
        cmocka_unit_test(many_entries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
