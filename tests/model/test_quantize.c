/* SPDX-License-Identifier: MIT
 * qrn_quantize against llama.cpp: every tensor of every type of the fairy model by its hash, and
 * the files that llama-quantize wrote; config and tokenizer as those of the directory. */
#include "support/model_test.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <quern/quantize.h>
#include <quern/text.h>
#include "formats/blocks.h"
#include "formats/gguf.h"
#include "model/files.h"
#include "support/sha256.h"
#include "support/sanitized.h"
#include "support/shared.h"
#include "support/temp.h"

static const char fairy[] = "models/fairy";

/* Quantises into a file of the test's folder and opens it; the file is gone when gguf is closed. */
static void quantise(const char *path, const char *type, bool pure, struct qrn_gguf *gguf)
{
    struct qrn_error err;
    char out[1024];
    (void)snprintf(out, sizeof out, "%s", temp_path("out.gguf"));
    const struct qrn_quantize_options o = {
        .path = path, .out_path = out, .type = type, .pure = pure};
    if (qrn_quantize(&o, &err) != QRN_OK) fail_msg("%s as %s: %s", path, type, err.text);
    if (qrn_gguf_open(out, NULL, NULL, gguf, &err) != QRN_OK) fail_msg("%s: %s", type, err.text);
    assert_int_equal(remove(out), 0);
}

/* --- hashes --- */

/* The type and the hash of each tensor.  ssm_a is -exp(A_log), and that of llama.cpp's converter is
 * not rounded correctly: of one layer it differs. */
static void check_hashes(const char *what, json_t *want, const struct qrn_gguf *gguf)
{
    const char *name;
    json_t *pair;
    assert_int_equal(gguf->archive.n_tensors, json_object_size(want));
    json_object_foreach(want, name, pair)
    {
        const struct qrn_archive_tensor *t = qrn_archive_find(&gguf->archive, name);
        char hex[65];
        if (!t) fail_msg("%s: %s is missing", what, name);
        const char *dtype = json_string_value(json_array_get(pair, 0));
        if (strcasecmp(qrn_dtype_info(t->dtype)->name, dtype) != 0)
            fail_msg("%s: %s is %s, should be %s", what, name, qrn_dtype_info(t->dtype)->name,
                     dtype);
        sha256_hex(t->data, t->n_bytes, hex);
        if (strncmp(hex, json_string_value(json_array_get(pair, 1)), 32) != 0 &&
            strcmp(name, "blk.6.ssm_a") != 0)
            fail_msg("%s: %s has other bytes", what, name);
    }
}

static void test_hashes(void **state)
{
    (void)state;
    if (SANITIZED_THREADS) skip(); /* encoding for minutes; the toys do it too */
    static const char mixture[] = "mixture ";
    json_t *root = json_load_file("tests/data/fairy_quantised_sha256.json", 0, NULL);
    json_t *types = json_object_get(root, "types"), *want;
    const char *type;
    assert_int_equal(json_object_size(types), 20);
    json_object_foreach(types, type, want)
    {
        const bool pure = strncmp(type, mixture, sizeof mixture - 1) != 0;
        struct qrn_gguf gguf;
        quantise(fairy, pure ? type : type + sizeof mixture - 1, pure, &gguf);
        check_hashes(type, want, &gguf);
        qrn_gguf_close(&gguf);
    }
    json_decref(root);
}

/* What the hashes leave out: plain types, which say exactly what the directory says. */
static void test_plain_types(void **state)
{
    (void)state;
    static const char *const matrices[][2] = {
        {"token_embd.weight", "model.embed_tokens.weight"},
        {"blk.3.attn_q.weight", "model.layers.3.self_attn.q_proj.weight"},
        {"blk.5.ffn_down.weight", "model.layers.5.mlp.down_proj.weight"}};
    struct qrn_safetensors st;
    struct qrn_gguf f32, bf16;
    struct qrn_error err;
    assert_int_equal(qrn_safetensors_open_dir(fairy, NULL, NULL, &st, &err), QRN_OK);
    quantise(fairy, "F32", false, &f32);
    quantise(fairy, "bf16", false, &bf16);
    for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++) {
        const struct qrn_archive_tensor *from = qrn_archive_find(&st.archive, matrices[i][1]);
        const struct qrn_archive_tensor *a = qrn_archive_find(&bf16.archive, matrices[i][0]);
        const struct qrn_archive_tensor *b = qrn_archive_find(&f32.archive, matrices[i][0]);
        assert_true(a && b && from);
        assert_int_equal(a->dtype, QRN_BF16);
        assert_int_equal(a->n_bytes, from->n_bytes);
        assert_memory_equal(a->data, from->data, from->n_bytes);
        float *values = malloc(2 * from->n_bytes);
        assert_non_null(values);
        qrn_decoder(QRN_BF16)(from->data, values, from->n_bytes / 2);
        assert_int_equal(b->dtype, QRN_F32);
        assert_memory_equal(b->data, values, 2 * from->n_bytes);
        free(values);
    }
    /* Value heads 0 1 2 3 stand as 0 2 1 3; each -exp(A_log) within an ulp. */
    const struct qrn_archive_tensor *log_a =
        qrn_archive_find(&st.archive, "model.layers.6.linear_attn.A_log");
    const struct qrn_archive_tensor *a = qrn_archive_find(&f32.archive, "blk.6.ssm_a");
    static const int old[] = {0, 2, 1, 3};
    float in[4], out[4];
    qrn_decoder(QRN_BF16)(log_a->data, in, 4);
    memcpy(out, a->data, sizeof out);
    for (int i = 0; i < 4; i++)
        assert_true(fabs((double)out[i] / -exp((double)in[old[i]]) - 1) < 1.2e-7);
    qrn_gguf_close(&f32);
    qrn_gguf_close(&bf16);
    qrn_safetensors_close(&st);
}

/* --- files that llama-quantize wrote --- */

static bool same_span(struct qrn_span a, struct qrn_span b)
{
    return a.n_bytes == b.n_bytes && memcmp(a.bytes, b.bytes, a.n_bytes) == 0;
}

static bool is(struct qrn_span s, const char *text)
{
    return same_span(s, (struct qrn_span){text, strlen(text)});
}

static bool same_value(const struct qrn_gguf_value *a, const struct qrn_gguf_value *b)
{
    if (a->type != b->type) return false;
    if (a->type == QRN_GGUF_STRING) return same_span(a->as.string, b->as.string);
    if (a->type != QRN_GGUF_ARRAY) return a->as.u == b->as.u;
    if (a->element != b->element || a->as.array.n != b->as.array.n) return false;
    for (uint64_t i = 0; i < a->as.array.n && a->element != QRN_GGUF_STRING; i++) {
        int64_t x, y;
        if (!qrn_gguf_array_i64(a, i, &x) || !qrn_gguf_array_i64(b, i, &y) || x != y) return false;
    }
    if (a->element != QRN_GGUF_STRING) return true;
    struct qrn_span *x = calloc(2 * a->as.array.n, sizeof *x), *y = x + a->as.array.n;
    assert_non_null(x);
    bool same = qrn_gguf_strings(a, x, a->as.array.n) && qrn_gguf_strings(b, y, a->as.array.n);
    for (uint64_t i = 0; i < a->as.array.n && same; i++) same = same_span(x[i], y[i]);
    free(x);
    return same;
}

/* The same keys and values but for names: of the converter's, general.size_label is not written,
 * and full_attention_interval of a model of two layers is what the layers show, not the default. */
static void check_values(const char *what, const struct qrn_gguf *got, const struct qrn_gguf *want)
{
    size_t n_left_out = 0;
    for (size_t i = 0; i < want->n_values; i++) {
        const struct qrn_gguf_value *b = &want->values[i];
        char key[128];
        (void)snprintf(key, sizeof key, "%.*s", (int)b->key.n_bytes, b->key.bytes);
        const struct qrn_gguf_value *a = qrn_gguf_find(got, key);
        n_left_out += !a;
        if (!a && !is(b->key, "general.size_label")) fail_msg("%s: no key %s", what, key);
        if (!a || is(b->key, "general.name")) continue;
        if (strstr(key, "full_attention_interval") && !strstr(what, "fairy")) continue;
        if (!same_value(a, b)) fail_msg("%s: key %s has another value", what, key);
    }
    assert_int_equal(got->n_values, want->n_values - n_left_out);
}

static void check_tensors(const char *what, const struct qrn_gguf *got, const struct qrn_gguf *want,
                          const char *but)
{
    assert_int_equal(got->archive.n_tensors, want->archive.n_tensors);
    for (size_t i = 0; i < want->archive.n_tensors; i++) {
        const struct qrn_archive_tensor *a = &got->archive.tensors[i],
                                        *b = &want->archive.tensors[i];
        assert_string_equal(a->name, b->name);
        bool same = a->dtype == b->dtype && a->n_dims == b->n_dims && a->n_bytes == b->n_bytes;
        for (int k = 0; k < a->n_dims && same; k++) same = a->shape[k] == b->shape[k];
        if (same && strcmp(a->name, but) != 0) same = memcmp(a->data, b->data, a->n_bytes) == 0;
        if (!same) fail_msg("%s: tensor %s differs", what, b->name);
        /* The same place too: files are laid out alike. */
        if (i) assert_true((a->data > a[-1].data) == (b->data > b[-1].data));
    }
}

static void test_official_files(void **state)
{
    (void)state;
    static const struct {
        const char *from, *type, *file, *but;
    } cases[] = {
        {"moe_small", "Q4_K_M", "gguf/moe_small-Q4_K_M.gguf", ""},
        {"next_small", "Q4_K_M", "gguf/next_small-Q4_K_M.gguf", ""},
        {"fairy", "Q4_K_M", "gguf/fairy-Q4_K_M.gguf", "blk.6.ssm_a"},
        {"fairy", "Q2_K", "gguf/fairy-Q2_K.gguf", "blk.6.ssm_a"},
    };
    if (SANITIZED_THREADS || !shared_path("models/moe_small")) skip();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char from[128], file[128];
        struct qrn_gguf got, want;
        struct qrn_error err;
        (void)snprintf(from, sizeof from, "models/%s", cases[i].from);
        (void)snprintf(file, sizeof file, "models/%s", cases[i].file);
        quantise(shared_path(from), cases[i].type, false, &got);
        if (qrn_gguf_open(shared_path(file), NULL, NULL, &want, &err) != QRN_OK)
            fail_msg("%s", err.text);
        check_values(cases[i].file, &got, &want);
        check_tensors(cases[i].file, &got, &want, cases[i].but);
        qrn_gguf_close(&got);
        qrn_gguf_close(&want);
    }
}

/* --- what the file says besides tensors --- */

static void check_config(const struct qrn_model_config *a, const struct qrn_model_config *b)
{
#define SAME(field) assert_int_equal(a->field, b->field)
    SAME(architecture);
    SAME(d_model);
    SAME(vocab_size);
    SAME(context_length);
    SAME(n_layers);
    SAME(tied_embeddings);
    SAME(n_heads);
    SAME(n_kv_heads);
    SAME(head_dim);
    SAME(n_rot);
    SAME(n_k_heads);
    SAME(n_v_heads);
    SAME(d_k);
    SAME(d_v);
    SAME(conv_kernel);
    SAME(d_ff);
#undef SAME
    assert_int_equal(a->n_mtp_layers, 0);
    assert_int_equal(a->eos[0], b->eos[0]); /* a reader of GGUF adds others by name */
    assert_true(a->heads_tiled && !b->heads_tiled);
    assert_true(fabs(a->rms_eps / b->rms_eps - 1) < 1e-7 && a->rope_theta == b->rope_theta);
    assert_memory_equal(a->rope_sections, b->rope_sections, sizeof a->rope_sections);
    assert_memory_equal(a->layer_is_linear, b->layer_is_linear, (size_t)a->n_layers);
}

static void check_tokenizer(const struct qrn_tokenizer *a, const struct qrn_tokenizer *b)
{
    static const char text[] =
        "Once upon a time,  there lived \xc3\xa9t\xc3\xa9 \xe4\xbd\xa0 12345 "
        "<|im_start|>user\n\nhe said: 'No!'\x80";
    struct qrn_error err;
    struct qrn_token_list x = {0}, y = {0};
    assert_int_equal(qrn_tokenizer_vocab_size(a), qrn_tokenizer_vocab_size(b));
    assert_int_equal(qrn_tokenizer_bos(a), qrn_tokenizer_bos(b));
    assert_int_equal(qrn_tokenizer_eos(a), qrn_tokenizer_eos(b));
    assert_int_equal(qrn_tokenizer_pad(a), qrn_tokenizer_pad(b));
    for (int32_t id = 0; id < qrn_tokenizer_vocab_size(a); id++) {
        struct qrn_span p, q;
        assert_int_equal(qrn_tokenizer_token(a, id, &p), qrn_tokenizer_token(b, id, &q));
        assert_true(same_span(p, q));
    }
    for (unsigned flags = 0; flags <= QRN_ENCODE_CONTROL; flags++) {
        assert_int_equal(qrn_tokenizer_encode(a, text, sizeof text, flags, &x, &err), QRN_OK);
        assert_int_equal(qrn_tokenizer_encode(b, text, sizeof text, flags, &y, &err), QRN_OK);
    }
    assert_int_equal(x.n_ids, y.n_ids);
    assert_memory_equal(x.ids, y.ids, x.n_ids * sizeof *x.ids);
    qrn_token_list_free(&x);
    qrn_token_list_free(&y);
}

static void test_metadata(void **state)
{
    (void)state;
    struct qrn_error err;
    struct qrn_model_files got, want;
    char out[1024];
    size_t n;
    (void)snprintf(out, sizeof out, "%s", temp_path("metadata.gguf"));
    const struct qrn_quantize_options q = {.path = fairy, .out_path = out, .type = "q2_k"};
    const struct qrn_model_options a = {.path = out}, b = {.path = fairy};
    if (qrn_quantize(&q, &err) != QRN_OK || qrn_model_files_open(&a, &got, &err) != QRN_OK ||
        qrn_model_files_open(&b, &want, &err) != QRN_OK)
        fail_msg("%s", err.text);
    check_config(&got.config, &want.config);
    check_tokenizer(got.tokenizer, want.tokenizer);
    struct qrn_span template, name;
    char *text = read_file("models/fairy/chat_template.jinja", &n);
    int64_t file_type = -1, version = -1;
    assert_true(qrn_gguf_string(&got.gguf, "tokenizer.chat_template", &template));
    assert_true(same_span(template, (struct qrn_span){text, n}));
    assert_true(qrn_gguf_string(&got.gguf, "general.name", &name) && is(name, "fairy"));
    assert_true(qrn_gguf_i64(&got.gguf, "general.file_type", &file_type));
    assert_true(qrn_gguf_i64(&got.gguf, "general.quantization_version", &version));
    assert_int_equal(file_type, 10);
    assert_int_equal(version, 2);
    free(text);
    qrn_model_files_close(&got);
    qrn_model_files_close(&want);
}

/* The logits of a directory and of its float32 GGUF file, in float32. */
static void test_mlx_logits(void **state)
{
    (void)state;
    static const int32_t ids[] = {490,  270, 198, 51,   417, 373, 259,
                                  2901, 289, 377, 3494, 556, 1707};
    enum { N = sizeof ids / sizeof *ids };
    if (!shared_path("models/fairy-mlx-4bit")) skip();
    struct qrn_error err;
    char out[1024], dir[1024];
    (void)snprintf(out, sizeof out, "%s", temp_path("mlx.gguf"));
    (void)snprintf(dir, sizeof dir, "%s", shared_path("models/fairy-mlx-4bit"));
    const struct qrn_quantize_options q = {.path = dir, .out_path = out, .type = "F32"};
    if (qrn_quantize(&q, &err) != QRN_OK) fail_msg("%s", err.text);
    struct qrn_device *dev = test_device(0);
    float *logits[2];
    for (int i = 0; i < 2; i++) {
        struct qrn_model *model = test_model(dev, i ? out : dir, true, QRN_KV_F32);
        struct qrn_seq *seq = test_seq(model, 0);
        logits[i] = test_append_all(model, seq, ids, N, 0);
        qrn_seq_destroy(seq);
        qrn_model_close(model);
    }
    const double worst = test_max_difference(logits[0], logits[1], N * 4096);
    print_message("MLX directory and its GGUF: max |difference| %.2g\n", worst);
    assert_true(worst < 2e-4);
    free(logits[0]);
    free(logits[1]);
    qrn_device_close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hashes),         cmocka_unit_test(test_plain_types),
        cmocka_unit_test(test_official_files), cmocka_unit_test(test_metadata),
        cmocka_unit_test(test_mlx_logits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
