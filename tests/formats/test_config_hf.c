/* SPDX-License-Identifier: MIT
 * The model's shape from config.json: defaults, variants, refusals. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "model/config.h"

static enum qrn_status parse(const char *text, struct qrn_model_config *c, struct qrn_error *err)
{
    return qrn_config_from_hf(text, strlen(text), NULL, 0, NULL, c, err);
}

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
        cmocka_unit_test(defaults_of_the_classes),
        cmocka_unit_test(values_wherever_they_stand),
        cmocka_unit_test(mlx_overrides),
        cmocka_unit_test(hf_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
