/* SPDX-License-Identifier: MIT
 * The model's shape from GGUF: variants, refusals. */
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
#include "support/temp.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gguf_variants),
        cmocka_unit_test(gguf_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
