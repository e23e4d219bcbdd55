/* SPDX-License-Identifier: MIT
 * qrn_quantize refuses: options, models, damaged files; is cancelled; memory fails.  Nothing is left. */
#include "model/quantize_toy.h"

#include "support/counting_allocator.h"
#include "support/memory_source.h"
#include "support/mutate.h"

static void test_bad_options(void **state)
{
    (void)state;
    const struct path dir = make_toy(TOY_DENSE), out = temp("bad.gguf"), none = temp("none");
    struct qrn_quantize_options o = {.path = dir.text, .out_path = out.text, .type = "Q8_0"};
    must_fail(NULL, QRN_ERR_ARGUMENT, "options");
    o.path = NULL;
    must_fail(&o, QRN_ERR_ARGUMENT, "path");
    o.path = none.text;
    must_fail(&o, QRN_ERR_IO, "none");
    o.path = dir.text;
    o.out_path = NULL;
    must_fail(&o, QRN_ERR_ARGUMENT, "out_path");
    const struct path nowhere = in(&none, "x.gguf");
    o.out_path = nowhere.text;
    must_fail(&o, QRN_ERR_IO, "x.gguf");
    o.out_path = out.text;
    o.type = NULL;
    must_fail(&o, QRN_ERR_ARGUMENT, "type");
    o.type = "Q9_9";
    must_fail(&o, QRN_ERR_ARGUMENT, "\"Q9_9\"");
    o.type = "Q1_0";
    must_fail(&o, QRN_ERR_UNSUPPORTED, "multiple");
    assert_false(exists(out.text));
    remove_dir(&dir);
}

/* Under its own name, another name, or the name that it has while it is written. */
static void test_output_is_input(void **state)
{
    (void)state;
    const struct path dir = make_toy(TOY_DENSE), gguf = temp("in.gguf"), link = temp("link.gguf"),
                      copy = temp("copy.gguf"), part = temp("part.gguf.part"),
                      whole = temp("part.gguf");
    const struct path config = in(&dir, "config.json");
    static const char text[] = "is a file that is read";
    must_quantise(dir.text, gguf.text, "F16");
    must_quantise(dir.text, copy.text, "F16");
    assert_int_equal(symlink(gguf.text, link.text), 0);
    assert_int_equal(rename(copy.text, part.text), 0);
    struct qrn_quantize_options o = {.path = gguf.text, .out_path = gguf.text, .type = "Q8_0"};
    must_fail(&o, QRN_ERR_ARGUMENT, text);
    o.out_path = link.text;
    must_fail(&o, QRN_ERR_ARGUMENT, text);
    o.path = link.text;
    o.out_path = gguf.text;
    must_fail(&o, QRN_ERR_ARGUMENT, text);
    o.path = part.text;
    o.out_path = whole.text;
    must_fail(&o, QRN_ERR_ARGUMENT, text);
    o.path = dir.text;
    o.out_path = config.text;
    must_fail(&o, QRN_ERR_ARGUMENT, text);
    must_be_same_file(gguf.text, part.text); /* both still there */
    remove_dir(&dir);
}

/* Leaves a tensor out, or gives it another shape. */
static void spoil(const struct path *dir, const char *ending, bool drop)
{
    struct qrn_safetensors st;
    struct qrn_error err;
    struct qrn_archive_tensor tensors[128];
    size_t n = 0, n_hits = 0;
    const struct path weights = in(dir, "model.safetensors"),
                      spoilt = in(dir, "chat_template.jinja");
    assert_int_equal(qrn_safetensors_open(weights.text, NULL, NULL, &st, &err), QRN_OK);
    assert_true(st.archive.n_tensors <= 128);
    for (size_t i = 0; i < st.archive.n_tensors; i++) {
        tensors[n] = st.archive.tensors[i];
        const bool hit = ends_with(tensors[n].name, ending);
        n_hits += hit;
        if (hit && !drop) {
            tensors[n].shape[0] /= 2;
            tensors[n].n_bytes /= 2;
        }
        n += !(hit && drop);
    }
    assert_true(n_hits > 0);
    assert_int_equal(qrn_safetensors_write(spoilt.text, tensors, n, NULL, &err), QRN_OK);
    qrn_safetensors_close(&st);
    assert_int_equal(rename(spoilt.text, weights.text), 0);
}

static void test_bad_models(void **state)
{
    (void)state;
    static const struct {
        enum toy_kind kind;
        const char *ending;
        bool drop;
        const char *fragment;
    } cases[] = {
        {TOY_DENSE, "embed_tokens.weight", true, "embed_tokens.weight"},
        {TOY_DENSE, "embed_tokens.weight", false, "elements"},
        {TOY_DENSE, "1.self_attn.q_norm.weight", true, "q_norm.weight\" is missing"},
        {TOY_DENSE, "A_log", false, "A_log\" has 2 elements, wants 4 x 1"},
        {TOY_DENSE, "in_proj_z.weight", true, "in_proj_z.weight\" is missing"},
        {TOY_MOE, "gate_up_proj", false, "gate_up_proj\" has"},
        {TOY_MOE, "lm_head.weight", true, "lm_head.weight\" is missing"},
        {TOY_NEXT, "in_proj_qkvz.weight", false, "in_proj_qkvz.weight\" has"},
        {TOY_NEXT, "in_proj_ba.weight", true, "in_proj_b.weight\" is missing"},
        {TOY_NEXT, "experts.3.up_proj.weight", true, "experts.3.up_proj.weight\" is missing"},
    };
    const struct path out = temp("bad.gguf");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct path dir = make_toy(cases[i].kind);
        spoil(&dir, cases[i].ending, cases[i].drop);
        must_fail(
            &(struct qrn_quantize_options){.path = dir.text, .out_path = out.text, .type = "Q4_0"},
            QRN_ERR_FORMAT, cases[i].fragment);
        assert_false(exists(out.text));
        remove_dir(&dir);
    }
}

/* --- progress --- */

struct calls {
    size_t n, cancel_at; /* 0: never */
    double last;
};

static bool count_calls(void *user, double done)
{
    struct calls *c = user;
    assert_true(done > c->last && done <= 1.0);
    c->last = done;
    return ++c->n != c->cancel_at;
}

static void test_cancel(void **state)
{
    (void)state;
    const struct path dir = make_toy(TOY_DENSE), out = temp("cancel.gguf"),
                      part = temp("cancel.gguf.part");
    struct calls all = {0};
    struct qrn_quantize_options o = {.path = dir.text,
                                     .out_path = out.text,
                                     .type = "Q8_0",
                                     .progress = count_calls,
                                     .progress_user = &all};
    assert_int_equal(qrn_quantize(&o, NULL), QRN_OK);
    assert_true(all.n > 10 && all.last == 1.0);
    assert_int_equal(remove(out.text), 0);
    for (size_t at = 1; at <= all.n; at++) {
        struct calls c = {.cancel_at = at};
        struct qrn_error err;
        if (at == all.n) write_text(&out, "what was there before");
        o.progress_user = &c;
        assert_int_equal(qrn_quantize(&o, &err), QRN_ERR_CANCELLED);
        assert_non_null(strstr(err.text, "cancelled"));
        assert_int_equal(c.n, at);
        assert_false(exists(part.text));
        assert_int_equal(exists(out.text), at == all.n);
    }
    size_t n;
    char *text = read_file(out.text, &n);
    assert_string_equal(text, "what was there before");
    free(text);
    remove_dir(&dir);
}

static void check_memory(const char *path, const char *type)
{
    const struct path out = temp("memory.gguf"), part = temp("memory.gguf.part");
    struct counting_allocator c;
    counting_allocator_init(&c);
    const struct qrn_host host = counting_host(&c);
    const struct qrn_quantize_options o = {
        .path = path, .out_path = out.text, .type = type, .host = host};
    size_t n = 0;
    for (size_t at = 1; n == 0; at++) {
        struct qrn_error err;
        counting_allocator_reset(&c);
        c.fail_at = at;
        const enum qrn_status s = qrn_quantize(&o, &err);
        assert_int_equal(c.live_blocks, 0);
        assert_int_equal(c.n_bad_frees, 0);
        assert_false(exists(part.text));
        if (s == QRN_OK && c.n_failed == 0) {
            n = c.n_calls;
        } else {
            if (s != QRN_ERR_MEMORY) fail_msg("allocation %zu: status %d, %s", at, s, err.text);
            assert_false(exists(out.text));
        }
    }
    assert_true(n > 20);
    assert_int_equal(remove(out.text), 0);
}

static void test_memory(void **state)
{
    (void)state;
    const struct path dir = make_toy(TOY_MOE), gguf = temp("in.gguf");
    add_text_files(&dir);
    check_memory(dir.text, "Q4_K_M");
    must_quantise(dir.text, gguf.text, "Q8_0");
    check_memory(gguf.text, "Q4_0");
    remove_dir(&dir);
}

/* Damaged files: refused, or quantised to a file that can be opened. */
static void check_damaged(const char *from,
                          void (*mutate)(struct mutate_random *, struct mutate_bytes *),
                          const struct memory_file *beside, int n_rounds)
{
    const struct path out = temp("damaged.gguf"), part = temp("damaged.gguf.part");
    struct mutate_random random = {.state = 5};
    size_t n, n_done = 0;
    void *good = read_file(from, &n);
    assert_non_null(good);
    for (int round = 0; round < n_rounds; round++) {
        struct mutate_bytes b = mutate_copy(good, n);
        mutate(&random, &b);
        const struct memory_file files[] = {
            {.name = beside ? "model.safetensors" : "x.gguf", .bytes = b.bytes, .n_bytes = b.n},
            beside ? *beside : (struct memory_file){.name = ""}};
        struct memory_source memory = {.files = files, .n_files = beside ? 2 : 1};
        const struct qrn_source source = memory_source_interface(&memory);
        const struct qrn_quantize_options o = {.source = &source,
                                               .path = beside ? NULL : "x.gguf",
                                               .out_path = out.text,
                                               .type = "Q4_K_M"};
        if (qrn_quantize(&o, NULL) == QRN_OK) {
            struct qrn_gguf gguf;
            must_open(out.text, &gguf);
            qrn_gguf_close(&gguf);
            assert_int_equal(remove(out.text), 0);
            n_done++;
        }
        assert_false(exists(out.text) || exists(part.text));
        assert_int_equal(memory.n_open, 0);
        free(b.bytes);
    }
    free(good);
    print_message("%zu of %d damaged files could be quantised\n", n_done, n_rounds);
    assert_true(n_done > 0 && n_done < (size_t)n_rounds);
}

static void test_damaged_files(void **state)
{
    (void)state;
    enum { N_ROUNDS = 500 };
    const struct path dir = make_toy(TOY_NEXT), gguf = temp("good.gguf");
    struct memory_file config = {.name = "config.json"};
    config.bytes = read_file(in(&dir, "config.json").text, &config.n_bytes);
    must_quantise(dir.text, gguf.text, "Q8_0");
    check_damaged(gguf.text, mutate_gguf, NULL, N_ROUNDS);
    check_damaged(in(&dir, "model.safetensors").text, mutate_safetensors, &config, N_ROUNDS);
    union {
        const void *in;
        void *out;
    } bytes = {.in = config.bytes};
    free(bytes.out);
    remove_dir(&dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_options), cmocka_unit_test(test_output_is_input),
        cmocka_unit_test(test_bad_models),  cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_memory),      cmocka_unit_test(test_damaged_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
