/* SPDX-License-Identifier: MIT
 * The model's shape from config.json and from GGUF: real ones, defaults, variants, refusals. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "formats/gguf.h"
#include "model/config.h"
#include "support/gguf_bytes.h"
#include "support/memory_source.h"
#include "support/shared.h"
#include "support/temp.h"

static enum qrn_status parse(const char *text, struct qrn_model_config *c, struct qrn_error *err)
{
    return qrn_config_from_hf(text, strlen(text), NULL, 0, NULL, c, err);
}

static void read_dir(const char *dir, struct qrn_model_config *c)
{
    char path[4096];
    size_t n, n_generation;
    struct qrn_error e = {0};
    snprintf(path, sizeof path, "%s/config.json", dir);
    char *text = read_file(path, &n);
    snprintf(path, sizeof path, "%s/generation_config.json", dir);
    char *generation = read_file(path, &n_generation);
    assert_non_null(text);
    assert_non_null(generation);
    if (qrn_config_from_hf(text, n, generation, n_generation, NULL, c, &e) != QRN_OK)
        fail_msg("%s: %s", dir, e.text);
    free(text);
    free(generation);
}

static void assert_fairy(const struct qrn_model_config *c)
{
    static const bool linear[8] = {true, true, true, false, true, true, true, false};
    assert_int_equal(c->architecture, QRN_QWEN35);
    assert_int_equal(c->d_model, 256);
    assert_int_equal(c->vocab_size, 4096);
    assert_int_equal(c->context_length, 4096);
    assert_int_equal(c->n_layers, 8);
    assert_int_equal(c->n_mtp_layers, 0);
    assert_true(fabs(c->rms_eps - 1e-6) < 1e-12);
    assert_true(c->tied_embeddings);
    assert_int_equal(c->n_heads, 4);
    assert_int_equal(c->n_kv_heads, 2);
    assert_int_equal(c->head_dim, 256);
    assert_int_equal(c->n_rot, 64);
    assert_true(c->rope_theta == 1e7);
    assert_int_equal(c->rope_sections[0], 11);
    assert_int_equal(c->rope_sections[2], 10);
    assert_int_equal(c->rope_sections[3], 0);
    assert_int_equal(c->rope_scaling, QRN_ROPE_SCALING_NONE);
    assert_int_equal(c->n_k_heads, 2);
    assert_int_equal(c->n_v_heads, 4);
    assert_int_equal(c->d_k, 128);
    assert_int_equal(c->d_v, 128);
    assert_int_equal(c->conv_kernel, 4);
    assert_memory_equal(c->layer_is_linear, linear, sizeof linear);
    assert_int_equal(c->d_ff, 768);
    assert_int_equal(c->n_experts, 0);
    assert_int_equal(c->eos[0], 4095);
    assert_int_equal(c->bos, -1);
}

static void fairy_from_hf(void **state)
{
    (void)state;
    struct qrn_model_config c;
    read_dir("models/fairy", &c);
    assert_fairy(&c);
    assert_int_equal(c.n_eos, 1); /* the same id in both files */
    assert_false(c.heads_tiled);
    assert_int_equal(c.quant, QRN_QUANT_NONE);
    qrn_config_free(&c);
    qrn_config_free(&c);
}

static void assert_moe(const struct qrn_model_config *c, enum qrn_architecture architecture)
{
    assert_int_equal(c->architecture, architecture);
    assert_int_equal(c->n_layers, 2);
    assert_true(c->layer_is_linear[0]);
    assert_false(c->layer_is_linear[1]);
    assert_int_equal(c->n_experts, 8);
    assert_int_equal(c->n_experts_used, 2);
    assert_int_equal(c->d_ff_expert, 256);
    assert_int_equal(c->d_ff_shared, 256);
    assert_true(c->norm_topk);
    assert_false(c->tied_embeddings);
    assert_int_equal(c->rope_sections[0], architecture == QRN_QWEN3NEXT ? 0 : 11);
    assert_int_equal(c->eos[0], 4095);
}

static void others_from_hf(void **state)
{
    (void)state;
    if (!shared_path("models/moe_small")) skip();
    struct qrn_model_config c;
    read_dir(shared_path("models/moe_small"), &c);
    assert_moe(&c, QRN_QWEN35MOE);
    qrn_config_free(&c);
    read_dir(shared_path("models/next_small"), &c);
    assert_moe(&c, QRN_QWEN3NEXT);
    qrn_config_free(&c);
    for (int bits = 4; bits <= 6; bits += 2) {
        read_dir(shared_path(bits == 4 ? "models/fairy-mlx-4bit" : "models/fairy-mlx-6bit"), &c);
        assert_fairy(&c);
        assert_int_equal(c.quant, QRN_QUANT_MLX);
        assert_int_equal(c.mlx.bits, bits);
        assert_int_equal(c.mlx.group_size, 64);
        qrn_config_free(&c);
    }
}

static void read_gguf(const char *path, struct qrn_model_config *c)
{
    struct qrn_gguf g;
    struct qrn_error e = {0};
    if (qrn_gguf_open(path, NULL, NULL, &g, &e) != QRN_OK) fail_msg("%s", e.text);
    if (qrn_config_from_gguf(&g, NULL, c, &e) != QRN_OK) fail_msg("%s", e.text);
    qrn_gguf_close(&g); /* the config keeps nothing of it */
}

static void real_ones_from_gguf(void **state)
{
    (void)state;
    static const char *const types[] = {"Q2_K", "Q4_0", "Q4_K_M", "Q8_0"};
    if (!shared_path("models/gguf")) skip();
    struct qrn_model_config c;
    for (size_t i = 0; i < 4; i++) {
        char path[64];
        snprintf(path, sizeof path, "models/gguf/fairy-%s.gguf", types[i]);
        read_gguf(shared_path(path), &c);
        assert_fairy(&c);
        assert_true(c.heads_tiled);
        qrn_config_free(&c);
    }
    read_gguf(shared_path("models/gguf/moe_small-Q4_K_M.gguf"), &c);
    assert_moe(&c, QRN_QWEN35MOE);
    assert_true(c.heads_tiled);
    qrn_config_free(&c);
    read_gguf(shared_path("models/gguf/next_small-Q4_K_M.gguf"), &c);
    assert_moe(&c, QRN_QWEN3NEXT);
    assert_false(c.heads_tiled);
    qrn_config_free(&c);
}

static void toy_from_gguf(void **state)
{
    (void)state;
    struct gguf_bytes b = gguf_toy();
    const struct memory_file file = {"m", b.bytes, b.n};
    struct memory_source memory = {&file, 1, false, 0, false};
    const struct qrn_source source = memory_source_interface(&memory);
    struct qrn_gguf g;
    struct qrn_model_config c;
    struct qrn_error e = {0};
    if (qrn_gguf_open("m", &source, NULL, &g, &e) != QRN_OK) fail_msg("%s", e.text);
    if (qrn_config_from_gguf(&g, NULL, &c, &e) != QRN_OK) fail_msg("%s", e.text);
    assert_int_equal(c.vocab_size, 8);
    assert_int_equal(c.d_v, 8);
    assert_int_equal(c.n_eos, 2); /* the one that is named, and <|endoftext|> */
    assert_int_equal(c.eos[0], 5);
    assert_int_equal(c.eos[1], 2);
    assert_true(c.tied_embeddings);
    assert_true(c.layer_is_linear[0]);
    assert_false(c.layer_is_linear[1]);
    qrn_config_free(&c);
    qrn_gguf_close(&g);
    free(b.bytes);
}

/* --- variants of GGUF --- */

struct key {
    const char *key;
    enum qrn_gguf_type type;
    int64_t value;
    const char *text;
    const int32_t *array;
    uint64_t n;
};

/* Writes a file with the usual keys of arch, without or with those of extra, and some tensors. */
static enum qrn_status write_and_read(const char *arch, const struct key *extra, size_t n_extra,
                                      const char *const *tensors, size_t n_tensors,
                                      struct qrn_model_config *c, struct qrn_error *err)
{
    static const struct {
        const char *key;
        uint32_t value;
    } usual[] = {
        {"block_count", 8},
        {"context_length", 128},
        {"embedding_length", 64},
        {"feed_forward_length", 64},
        {"attention.head_count", 4},
        {"attention.head_count_kv", 2},
        {"attention.key_length", 16},
        {"ssm.conv_kernel", 4},
        {"ssm.state_size", 8},
        {"ssm.group_count", 2},
        {"ssm.time_step_rank", 4},
        {"ssm.inner_size", 64},
        {"expert_count", 4},
        {"expert_used_count", 2},
        {"expert_feed_forward_length", 8},
        {"vocab_size", 99},
    };
    const char *path = temp_path("variant.gguf");
    struct qrn_gguf_writer *w;
    char key[100];
    assert_int_equal(qrn_gguf_writer_create(path, NULL, &w, NULL), QRN_OK);
    qrn_gguf_write_string(w, "general.architecture", (struct qrn_span){arch, strlen(arch)});
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) {
        bool replaced = false;
        for (size_t k = 0; k < n_extra; k++) replaced |= strcmp(extra[k].key, usual[i].key) == 0;
        snprintf(key, sizeof key, "%s.%s", arch, usual[i].key);
        if (!replaced) qrn_gguf_write_u32(w, key, usual[i].value);
    }
    for (size_t k = 0; k < n_extra; k++) {
        snprintf(key, sizeof key, "%s.%s", arch, extra[k].key);
        struct qrn_gguf_value v = {.key = {key, strlen(key)}, .type = extra[k].type};
        if (extra[k].array)
            qrn_gguf_write_i32s(w, key, extra[k].array, extra[k].n);
        else if (extra[k].text)
            qrn_gguf_write_string(w, key, (struct qrn_span){extra[k].text, strlen(extra[k].text)});
        else if (extra[k].type == QRN_GGUF_F32)
            qrn_gguf_write_f32(w, key, (float)extra[k].value);
        else if (extra[k].type != QRN_GGUF_ARRAY) {
            v.as.i = extra[k].value;
            qrn_gguf_write_value(w, &v);
        }
    }
    for (size_t i = 0; i < n_tensors; i++)
        qrn_gguf_write_tensor(w, tensors[i], QRN_F32, 2, (const int64_t[]){0, 1});
    assert_int_equal(qrn_gguf_writer_finish(w, NULL), QRN_OK);
    struct qrn_gguf g;
    assert_int_equal(qrn_gguf_open(path, NULL, NULL, &g, NULL), QRN_OK);
    const enum qrn_status s = qrn_config_from_gguf(&g, NULL, c, err);
    qrn_gguf_close(&g);
    return s;
}

static void gguf_variants(void **state)
{
    (void)state;
    struct qrn_model_config c;
    struct qrn_error e = {0};
    static const int32_t kv[] = {0, 0, 2, 0, 0, 2, 0, 0}, recurrent[] = {1, 1, 0, 1, 1, 0, 1, 1},
                         sections[] = {2, 0, 0};
    const struct key keys[] = {
        {"attention.head_count_kv", QRN_GGUF_ARRAY, 0, NULL, kv, 8},
        {"attention.recurrent_layers", QRN_GGUF_ARRAY, 0, NULL, recurrent, 8},
        {"rope.dimension_sections", QRN_GGUF_ARRAY, 0, NULL, sections, 3},
        {"context_length", QRN_GGUF_U64, 4096, NULL, NULL, 0},
        {"embedding_length", QRN_GGUF_I32, 32, NULL, NULL, 0},
        {"ssm.v_head_reordered", QRN_GGUF_BOOL, 0, NULL, NULL, 0},
        {"rope.scaling.type", QRN_GGUF_STRING, 0, "yarn", NULL, 0},
        {"rope.scaling.factor", QRN_GGUF_F32, 4, NULL, NULL, 0},
        {"rope.scaling.original_context_length", QRN_GGUF_U32, 1024, NULL, NULL, 0},
    };
    /* Tensors win over the list: layer 7 is an attention layer, layer 5 is not. */
    static const char *const tensors[] = {"blk.7.attn_q.weight", "blk.5.ssm_a", "output.weight"};
    if (write_and_read("qwen35", keys, 9, tensors, 3, &c, &e) != QRN_OK) fail_msg("%s", e.text);
    static const bool linear[8] = {true, true, false, true, true, true, true, false};
    assert_memory_equal(c.layer_is_linear, linear, sizeof linear);
    assert_int_equal(c.n_kv_heads, 2);
    assert_int_equal(c.vocab_size, 99);
    assert_int_equal(c.context_length, 4096);
    assert_int_equal(c.d_v, 16);
    assert_int_equal(c.rope_sections[0], 2);
    assert_int_equal(c.n_rot, 4);
    assert_false(c.heads_tiled);
    assert_false(c.tied_embeddings);
    assert_int_equal(c.rope_scaling, QRN_ROPE_SCALING_YARN);
    assert_int_equal(c.yarn.original_context, 1024);
    assert_true(fabs(c.yarn.attention_factor - (0.1 * log(4) + 1)) < 1e-12);
    qrn_config_free(&c);

    const struct key mtp[] = {{"nextn_predict_layers", QRN_GGUF_U32, 1, NULL, NULL, 0},
                              {"block_count", QRN_GGUF_U32, 5, NULL, NULL, 0}};
    if (write_and_read("qwen35moe", mtp, 2, NULL, 0, &c, &e) != QRN_OK) fail_msg("%s", e.text);
    assert_int_equal(c.n_layers, 4);
    assert_int_equal(c.n_mtp_layers, 1);
    assert_int_equal(c.n_experts, 4);
    assert_int_equal(c.d_ff_shared, 8);
    assert_true(c.heads_tiled);
    assert_false(c.layer_is_linear[3]);
    qrn_config_free(&c);

    static const char *const nextn[] = {"blk.7.nextn.eh_proj.weight", "blk.7.attn_q.weight"};
    if (write_and_read("qwen3next", NULL, 0, nextn, 2, &c, &e) != QRN_OK) fail_msg("%s", e.text);
    assert_int_equal(c.n_layers, 7);
    assert_int_equal(c.n_mtp_layers, 1);
    assert_false(c.heads_tiled);
    qrn_config_free(&c);
}

static void gguf_refusals(void **state)
{
    (void)state;
    static const int32_t two[] = {2, 4}, six[] = {1, 1, 1, 1, 1, 1};
    static const struct {
        const char *arch;
        struct key key;
        enum qrn_status status;
        const char *text;
    } cases[] = {
        {"llama",
         {"x", QRN_GGUF_U32, 0, NULL, NULL, 0},
         QRN_ERR_UNSUPPORTED,
         "\"llama\"; known are"},
        {"qwen35",
         {"block_count", QRN_GGUF_ARRAY, 0, NULL, NULL, 0},
         QRN_ERR_FORMAT,
         "key qwen35.block_count is missing"},
        {"qwen35",
         {"block_count", QRN_GGUF_U32, 0, NULL, NULL, 0},
         QRN_ERR_FORMAT,
         "block_count is 0"},
        {"qwen35",
         {"block_count", QRN_GGUF_U64, INT64_MAX, NULL, NULL, 0},
         QRN_ERR_FORMAT,
         "block_count is 9223372036854775807"},
        {"qwen35",
         {"block_count", QRN_GGUF_U64, -1, NULL, NULL, 0},
         QRN_ERR_FORMAT,
         "not an integer"},
        {"qwen35",
         {"nextn_predict_layers", QRN_GGUF_U32, 8, NULL, NULL, 0},
         QRN_ERR_FORMAT,
         "nextn_predict_layers 8"},
        {"qwen35",
         {"embedding_length", QRN_GGUF_F32, 64, NULL, NULL, 0},
         QRN_ERR_FORMAT,
         "embedding_length is not an integer"},
        {"qwen35",
         {"embedding_length", QRN_GGUF_I32, -1, NULL, NULL, 0},
         QRN_ERR_FORMAT,
         "hidden_size (embedding_length in GGUF) is -1, wants 1 to 1048576"},
        {"qwen35",
         {"attention.head_count_kv", QRN_GGUF_ARRAY, 0, NULL, two, 2},
         QRN_ERR_UNSUPPORTED,
         "differs between layers: 2 and 4"},
        {"qwen35",
         {"attention.head_count_kv", QRN_GGUF_U32, 3, NULL, NULL, 0},
         QRN_ERR_FORMAT,
         "4 is not a multiple of 3"},
        {"qwen35",
         {"ssm.time_step_rank", QRN_GGUF_U32, 0, NULL, NULL, 0},
         QRN_ERR_FORMAT,
         "ssm.time_step_rank 0"},
        {"qwen35",
         {"ssm.time_step_rank", QRN_GGUF_U32, 5, NULL, NULL, 0},
         QRN_ERR_FORMAT,
         "ssm.inner_size 64 is not a multiple"},
        {"qwen35",
         {"attention.value_length", QRN_GGUF_U32, 8, NULL, NULL, 0},
         QRN_ERR_UNSUPPORTED,
         "value_length 8 differs"},
        {"qwen35",
         {"attention.recurrent_layers", QRN_GGUF_ARRAY, 0, NULL, six, 6},
         QRN_ERR_FORMAT,
         "has 6 entries, wants 8"},
        {"qwen35",
         {"attention.recurrent_layers", QRN_GGUF_U32, 1, NULL, NULL, 0},
         QRN_ERR_FORMAT,
         "not an array of bools"},
        {"qwen35",
         {"rope.dimension_sections", QRN_GGUF_ARRAY, 0, NULL, six, 5},
         QRN_ERR_FORMAT,
         "at most 4 integers"},
        {"qwen35",
         {"rope.dimension_count", QRN_GGUF_U32, 18, NULL, NULL, 0},
         QRN_ERR_FORMAT,
         "18 rotary dims in heads of 16"},
        {"qwen35",
         {"rope.scaling.type", QRN_GGUF_STRING, 0, "linear", NULL, 0},
         QRN_ERR_UNSUPPORTED,
         "rope.scaling.type \"linear\""},
        {"qwen35",
         {"rope.freq_base", QRN_GGUF_F32, 0, NULL, NULL, 0},
         QRN_ERR_FORMAT,
         "rope_theta is 0, wants 1 to"},
        {"qwen35",
         {"full_attention_interval", QRN_GGUF_U32, 0, NULL, NULL, 0},
         QRN_ERR_FORMAT,
         "full_attention_interval"},
        {"qwen35moe",
         {"expert_used_count", QRN_GGUF_U32, 5, NULL, NULL, 0},
         QRN_ERR_FORMAT,
         "is 5, wants 1 to 4"},
        {"qwen35moe",
         {"expert_count", QRN_GGUF_U32, 0, NULL, NULL, 0},
         QRN_ERR_FORMAT,
         "expert_count is 0 in a mixture"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct qrn_model_config c;
        struct qrn_error e = {0};
        const enum qrn_status s = write_and_read(cases[i].arch, &cases[i].key, 1, NULL, 0, &c, &e);
        if (s != cases[i].status || !strstr(e.text, cases[i].text))
            fail_msg("case %zu: %s, \"%s\", wants \"%s\"", i, qrn_status_name(s), e.text,
                     cases[i].text);
        assert_null(c.layer_is_linear);
    }
}

/* --- variants of config.json --- */

static void defaults_of_the_classes(void **state)
{
    (void)state;
    struct qrn_model_config c;
    struct qrn_error e = {0};
    if (parse("{\"model_type\":\"qwen3_5\"}", &c, &e) != QRN_OK) fail_msg("%s", e.text);
    assert_int_equal(c.d_model, 4096);
    assert_int_equal(c.n_layers, 32);
    assert_int_equal(c.d_ff, 12288);
    assert_int_equal(c.vocab_size, 248320);
    assert_int_equal(c.n_kv_heads, 4);
    assert_int_equal(c.n_rot, 64);
    assert_true(c.rope_theta == 1e7);
    assert_int_equal(c.n_eos, 0);
    assert_true(c.layer_is_linear[30] && !c.layer_is_linear[31]);
    qrn_config_free(&c);
    assert_int_equal(parse("{\"model_type\":\"qwen3_5_moe_text\"}", &c, NULL), QRN_OK);
    assert_int_equal(c.d_model, 2048);
    assert_int_equal(c.n_layers, 40);
    assert_int_equal(c.n_experts, 256);
    assert_int_equal(c.n_experts_used, 8);
    qrn_config_free(&c);
    assert_int_equal(parse("{\"model_type\":\"qwen3_next\"}", &c, NULL), QRN_OK);
    assert_int_equal(c.n_layers, 48);
    assert_int_equal(c.n_experts, 512);
    assert_int_equal(c.vocab_size, 151936);
    assert_int_equal(c.rope_sections[0], 0);
    qrn_config_free(&c);
}

static void values_wherever_they_stand(void **state)
{
    (void)state;
    struct qrn_model_config c;
    struct qrn_error e = {0};
    static const char nested[] =
        "{\"model_type\":\"qwen3_5\",\"tie_word_embeddings\":true,\"eos_token_id\":[7,8],"
        "\"text_config\":{\"num_hidden_layers\":3,\"full_attention_interval\":3,\"eos_token_id\":8,"
        "\"bos_token_id\":5,\"mtp_num_hidden_layers\":1,\"rope_theta\":5000,"
        "\"partial_rotary_factor\":0.5,\"rope_parameters\":null,\"attn_output_gate\":true,"
        "\"max_position_embeddings\":1000,"
        "\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4.0,\"original_max_position_embeddings\":"
        "250,"
        "\"beta_fast\":16,\"mscale\":2,\"mscale_all_dim\":1,\"truncate\":false}}}";
    static const char generation[] = "{\"eos_token_id\":[9,7]}";
    if (qrn_config_from_hf(nested, strlen(nested), generation, strlen(generation), NULL, &c, &e) !=
        QRN_OK)
        fail_msg("%s", e.text);
    assert_int_equal(c.n_layers, 3);
    assert_false(c.layer_is_linear[2]);
    assert_int_equal(c.n_mtp_layers, 1);
    assert_true(c.tied_embeddings);
    assert_true(c.rope_theta == 5000);
    assert_int_equal(c.n_rot, 128);
    assert_int_equal(c.n_eos, 3);
    assert_int_equal(c.eos[0], 7);
    assert_int_equal(c.eos[2], 9);
    assert_int_equal(c.bos, 5);
    assert_int_equal(c.rope_scaling, QRN_ROPE_SCALING_YARN);
    assert_int_equal(c.yarn.original_context, 250);
    assert_true(c.yarn.beta_fast == 16 && c.yarn.beta_slow == 1 && !c.yarn.truncate);
    assert_true(fabs(c.yarn.attention_factor - (0.2 * log(4) + 1) / (0.1 * log(4) + 1)) < 1e-12);
    qrn_config_free(&c);
    assert_int_equal(
        parse("{\"model_type\":\"qwen3_5\",\"rope_parameters\":{\"rope_type\":\"yarn\","
              "\"original_max_position_embeddings\":8192,\"attention_factor\":1.5,"
              "\"rope_theta\":1e6}}",
              &c, &e),
        QRN_OK);
    assert_true(c.yarn.factor == 4 && c.yarn.attention_factor == 1.5 && c.rope_theta == 1e6);
    qrn_config_free(&c);
}

static void mlx_overrides(void **state)
{
    (void)state;
    struct qrn_model_config c;
    struct qrn_error e = {0};
    static const char text[] = "{\"model_type\":\"qwen3_5\",\"quantization\":{\"group_size\":64,"
                               "\"bits\":4,\"mode\":\"mxfp8\","
                               "\"group_size\":32,\"bits\":8}}";
    assert_int_equal(parse(text, &c, &e), QRN_ERR_FORMAT); /* keys twice */
    static const char good[] =
        "{\"model_type\":\"qwen3_5\",\"quantization\":{\"mode\":\"mxfp4\","
        "\"a.gate\":{\"group_size\":64,\"bits\":8},\"a.off\":false,\"a.on\":true,"
        "\"a.nv\":{\"mode\":\"nvfp4\"}},\"quantization_config\":{}}";
    if (parse(good, &c, &e) != QRN_OK) fail_msg("%s", e.text);
    assert_int_equal(c.quant, QRN_QUANT_MLX);
    struct qrn_mlx_quant q = qrn_config_mlx_quant(&c, "other");
    assert_int_equal(q.mode, QRN_MLX_MXFP4);
    assert_int_equal(q.group_size, 32);
    q = qrn_config_mlx_quant(&c, "a.gate"); /* the mode of an entry is affine unless it says so */
    assert_int_equal(q.mode, QRN_MLX_AFFINE);
    assert_int_equal(q.bits, 8);
    assert_int_equal(qrn_config_mlx_quant(&c, "a.off").group_size, 0);
    assert_int_equal(qrn_config_mlx_quant(&c, "a.on").mode, QRN_MLX_MXFP4);
    assert_int_equal(qrn_config_mlx_quant(&c, "a.nv").group_size, 16);
    qrn_config_free(&c);
    assert_int_equal(parse("{\"model_type\":\"qwen3_5\",\"quantization_config\":{\"quant_method\":"
                           "\"fp8\",\"weight_block_size\":[128,64]}}",
                           &c, &e),
                     QRN_OK);
    assert_int_equal(c.quant, QRN_QUANT_FP8);
    assert_int_equal(c.fp8_cols, 64);
    qrn_config_free(&c);
}

static void hf_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *more; /* behind model_type */
        enum qrn_status status;
        const char *text;
    } cases[] = {
        {"\"hidden_size\":0", QRN_ERR_FORMAT,
         "hidden_size (embedding_length in GGUF) is 0, wants 1"},
        {"\"hidden_size\":1e3", QRN_ERR_FORMAT, "hidden_size is not an integer"},
        {"\"hidden_size\":\"4\"", QRN_ERR_FORMAT, "hidden_size is not an integer"},
        {"\"hidden_size\":9223372036854775807", QRN_ERR_FORMAT, "is 9223372036854775807, wants"},
        {"\"hidden_size\":92233720368547758070", QRN_ERR_FORMAT, "hidden_size is not an integer"},
        {"\"num_hidden_layers\":1025", QRN_ERR_FORMAT, "is 1025, wants 1 to 1024"},
        {"\"num_hidden_layers\":-1", QRN_ERR_FORMAT, "is -1, wants 1 to 1024"},
        {"\"head_dim\":9223372036854775807", QRN_ERR_FORMAT, "head_dim"},
        {"\"num_key_value_heads\":3", QRN_ERR_FORMAT, "16 is not a multiple of 3"},
        {"\"linear_num_key_heads\":5", QRN_ERR_FORMAT, "32 is not a multiple of 5"},
        {"\"linear_conv_kernel_dim\":1", QRN_ERR_FORMAT, "is 1, wants 2 to 64"},
        {"\"full_attention_interval\":0", QRN_ERR_FORMAT, "full_attention_interval"},
        {"\"num_hidden_layers\":1,\"layer_types\":[]", QRN_ERR_FORMAT, "has 0 entries, wants 1"},
        {"\"num_hidden_layers\":1,\"layer_types\":[3]", QRN_ERR_FORMAT, "layer_types[0] is \"\""},
        {"\"num_hidden_layers\":1,\"layer_types\":[\"mamba\"]", QRN_ERR_FORMAT,
         "is \"mamba\", wants"},
        {"\"layer_types\":{}", QRN_ERR_FORMAT, "layer_types is not an array"},
        {"\"rms_norm_eps\":0", QRN_ERR_FORMAT, "rms_norm_eps is 0"},
        {"\"rms_norm_eps\":-1e-6", QRN_ERR_FORMAT, "rms_norm_eps is -1e-06"},
        {"\"rope_theta\":0.5", QRN_ERR_FORMAT, "rope_theta is 0.5"},
        {"\"partial_rotary_factor\":1.5", QRN_ERR_FORMAT, "partial_rotary_factor is 1.5"},
        {"\"partial_rotary_factor\":0.001", QRN_ERR_FORMAT, "partial_rotary_factor * head_dim"},
        {"\"rope_parameters\":[]", QRN_ERR_FORMAT, "rope_parameters is not an object"},
        {"\"rope_parameters\":{\"rope_type\":\"llama3\"}", QRN_ERR_UNSUPPORTED, "\"llama3\""},
        {"\"rope_parameters\":{\"mrope_section\":[1,2,3,4,5]}", QRN_ERR_FORMAT, "at most 4"},
        {"\"rope_parameters\":{\"rope_type\":\"yarn\",\"factor\":0.5}", QRN_ERR_FORMAT,
         "YaRN factor is 0.5"},
        {"\"rope_scaling\":{\"type\":\"yarn\",\"original_max_position_embeddings\":0}",
         QRN_ERR_FORMAT, "YaRN factor is 0"},
        {"\"attn_output_gate\":false", QRN_ERR_UNSUPPORTED, "attn_output_gate is false"},
        {"\"attention_bias\":true", QRN_ERR_UNSUPPORTED, "attention_bias is true"},
        {"\"attention_bias\":1", QRN_ERR_FORMAT, "attention_bias is not true or false"},
        {"\"hidden_act\":\"gelu\"", QRN_ERR_UNSUPPORTED, "hidden_act \"gelu\""},
        {"\"num_experts\":4", QRN_ERR_FORMAT, "num_experts is 4 in a dense model"},
        {"\"eos_token_id\":\"x\"", QRN_ERR_FORMAT, "eos_token_id is not an integer or a list"},
        {"\"eos_token_id\":[1,null]", QRN_ERR_FORMAT, "a list of integers"},
        {"\"eos_token_id\":-1", QRN_ERR_FORMAT, "end token -1"},
        {"\"eos_token_id\":[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]", QRN_ERR_FORMAT,
         "more than 16 end tokens"},
        {"\"text_config\":[]", QRN_ERR_FORMAT, "text_config is not an object"},
        {"\"text_config\":{\"model_type\":\"llama\"}", QRN_ERR_UNSUPPORTED, "model_type \"llama\""},
        {"\"quantization\":3", QRN_ERR_FORMAT, "quantization is not an object"},
        {"\"quantization\":{\"bits\":7}", QRN_ERR_UNSUPPORTED, "7 bits in groups of 64"},
        {"\"quantization\":{\"group_size\":48}", QRN_ERR_UNSUPPORTED, "4 bits in groups of 48"},
        {"\"quantization\":{\"mode\":\"int4\"}", QRN_ERR_UNSUPPORTED, "mode \"int4\" is not known"},
        {"\"quantization\":{\"a\":3}", QRN_ERR_FORMAT,
         "the value of \"a\" is not an object or false"},
        {"\"quantization_config\":{\"quant_method\":\"gptq\"}", QRN_ERR_UNSUPPORTED, "\"gptq\""},
        {"\"quantization_config\":{\"quant_method\":\"fp8\"}", QRN_ERR_UNSUPPORTED,
         "weight_block_size"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512];
        struct qrn_model_config c;
        struct qrn_error e = {0};
        snprintf(text, sizeof text, "{\"model_type\":\"qwen3_5\",%s}", cases[i].more);
        const enum qrn_status s = parse(text, &c, &e);
        if (s != cases[i].status || !strstr(e.text, cases[i].text) ||
            strncmp(e.text, "config.json: ", 13) != 0)
            fail_msg("%s: %s, \"%s\", wants \"%s\"", text, qrn_status_name(s), e.text,
                     cases[i].text);
        assert_null(c.layer_is_linear);
    }
    struct qrn_model_config c;
    struct qrn_error e = {0};
    assert_int_equal(parse("[]", &c, &e), QRN_ERR_FORMAT);
    assert_int_equal(parse("", &c, &e), QRN_ERR_FORMAT);
    assert_int_equal(parse("{}", &c, &e), QRN_ERR_FORMAT);
    assert_string_equal(e.text, "config.json: model_type is missing or not a string");
    assert_int_equal(parse("{\"model_type\":\"qwen3_next\",\"mlp_only_layers\":[0]}", &c, &e),
                     QRN_ERR_UNSUPPORTED);
    assert_int_equal(parse("{\"model_type\":\"qwen3_next\",\"decoder_sparse_step\":2}", &c, &e),
                     QRN_ERR_UNSUPPORTED);
    assert_int_equal(parse("{\"model_type\":\"qwen3_next\",\"num_experts_per_tok\":513}", &c, &e),
                     QRN_ERR_FORMAT);
    static const char good[] = "{\"model_type\":\"qwen3_5\"}";
    assert_int_equal(qrn_config_from_hf(good, strlen(good), "[1", 2, NULL, &c, &e), QRN_ERR_FORMAT);
    assert_non_null(strstr(e.text, "generation_config.json: JSON"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fairy_from_hf),           cmocka_unit_test(others_from_hf),
        cmocka_unit_test(real_ones_from_gguf),     cmocka_unit_test(toy_from_gguf),
        cmocka_unit_test(gguf_variants),           cmocka_unit_test(gguf_refusals),
        cmocka_unit_test(defaults_of_the_classes), cmocka_unit_test(values_wherever_they_stand),
        cmocka_unit_test(mlx_overrides),           cmocka_unit_test(hf_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
