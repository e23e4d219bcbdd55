/* SPDX-License-Identifier: MIT
 * The model's shape from config.json and from GGUF: real ones. */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fairy_from_hf),
        cmocka_unit_test(others_from_hf),
        cmocka_unit_test(real_ones_from_gguf),
        cmocka_unit_test(toy_from_gguf),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
