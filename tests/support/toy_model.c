/* SPDX-License-Identifier: MIT
 * Models of a few thousand parameters with random weights. */
#include "support/toy_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/safetensors.h"
#include "support/op_test.h"
#include "support/temp.h"

enum { VOCAB = 96, EXPERTS = 4, TOP = 2, KERNEL = 4, N_LAYERS = 3, MAX_TENSORS = 128 };

struct shape {
    int d, heads, kv_heads, head_dim, k_heads, v_heads, d_k, d_v, ff, ff_expert, ff_shared;
    double scale; /* of matrices */
};

static const struct shape small = {32, 2, 1, 16, 2, 4, 16, 16, 48, 32, 32, 0.25},
                          wide = {640, 2, 1, 128, 1, 2, 128, 128, 256, 512, 512, 0.05};

static int values_of(const struct shape *s)
{
    return s->v_heads * s->d_v;
}
static int channels_of(const struct shape *s)
{
    return 2 * s->k_heads * s->d_k + values_of(s);
}

struct writer {
    const struct shape *s;
    struct qrn_archive_tensor tensors[MAX_TENSORS];
    size_t n;
    struct rng rng;
    const char *prefix;
};

static char *format(const char *prefix, const char *name)
{
    const size_t n = strlen(prefix) + strlen(name) + 1;
    char *text = malloc(n);
    assert_non_null(text);
    (void)snprintf(text, n, "%s%s", prefix, name);
    return text;
}

/* What it is but for its size. */
static enum toy_kind narrow(enum toy_kind kind)
{
    return kind == TOY_WIDE ? TOY_DENSE : kind == TOY_WIDE_MOE ? TOY_MOE : kind;
}

/* A tensor of normal numbers times scale plus shift. */
static void add(struct writer *w, const char *prefix, const char *name, double scale, double shift,
                int n_dims, int64_t n0, int64_t n1, int64_t n2)
{
    struct qrn_archive_tensor *t = &w->tensors[w->n++];
    const int64_t shape[] = {n0, n1, n2};
    size_t n = 1;
    assert_true(w->n <= MAX_TENSORS);
    *t = (struct qrn_archive_tensor){
        .name = format(prefix, name), .dtype = QRN_F32, .type_name = "F32", .n_dims = n_dims};
    for (int i = 0; i < n_dims; i++) {
        t->shape[i] = shape[i];
        n *= (size_t)shape[i];
    }
    float *values = malloc(n * sizeof *values);
    assert_non_null(values);
    for (size_t i = 0; i < n; i++) values[i] = (float)(shift + scale * rng_normal(&w->rng));
    t->data = (const uint8_t *)values;
    t->n_bytes = n * sizeof *values;
}

static void add_matrix(struct writer *w, const char *layer, const char *name, int64_t n_out,
                       int64_t n_in)
{
    add(w, layer, name, w->s->scale, 0.0, 2, n_out, n_in, 0);
}

static void add_linear(struct writer *w, const char *layer, enum toy_kind kind)
{
    if (kind == TOY_NEXT) {
        add_matrix(w, layer, "linear_attn.in_proj_qkvz.weight", channels_of(w->s) + values_of(w->s),
                   w->s->d);
        add_matrix(w, layer, "linear_attn.in_proj_ba.weight", 2 * w->s->v_heads, w->s->d);
    } else {
        add_matrix(w, layer, "linear_attn.in_proj_qkv.weight", channels_of(w->s), w->s->d);
        add_matrix(w, layer, "linear_attn.in_proj_z.weight", values_of(w->s), w->s->d);
        add_matrix(w, layer, "linear_attn.in_proj_b.weight", w->s->v_heads, w->s->d);
        add_matrix(w, layer, "linear_attn.in_proj_a.weight", w->s->v_heads, w->s->d);
    }
    add(w, layer, "linear_attn.conv1d.weight", 0.5, 0.0, 3, channels_of(w->s), 1, KERNEL);
    add(w, layer, "linear_attn.A_log", 0.5, 0.5, 1, w->s->v_heads, 0, 0);
    add(w, layer, "linear_attn.dt_bias", 0.5, -1.0, 1, w->s->v_heads, 0, 0);
    add(w, layer, "linear_attn.norm.weight", 0.1, 1.0, 1, w->s->d_v, 0, 0);
    add_matrix(w, layer, "linear_attn.out_proj.weight", w->s->d, values_of(w->s));
}

static void add_attention(struct writer *w, const char *layer)
{
    add_matrix(w, layer, "self_attn.q_proj.weight", w->s->heads * 2 * w->s->head_dim, w->s->d);
    add_matrix(w, layer, "self_attn.k_proj.weight", w->s->kv_heads * w->s->head_dim, w->s->d);
    add_matrix(w, layer, "self_attn.v_proj.weight", w->s->kv_heads * w->s->head_dim, w->s->d);
    add_matrix(w, layer, "self_attn.o_proj.weight", w->s->d, w->s->heads * w->s->head_dim);
    add(w, layer, "self_attn.q_norm.weight", 0.1, 0.0, 1, w->s->head_dim, 0, 0);
    add(w, layer, "self_attn.k_norm.weight", 0.1, 0.0, 1, w->s->head_dim, 0, 0);
}

static void add_swiglu(struct writer *w, const char *layer, const char *module, int64_t n)
{
    char name[96];
    (void)snprintf(name, sizeof name, "%s.gate_proj.weight", module);
    add_matrix(w, layer, name, n, w->s->d);
    (void)snprintf(name, sizeof name, "%s.up_proj.weight", module);
    add_matrix(w, layer, name, n, w->s->d);
    (void)snprintf(name, sizeof name, "%s.down_proj.weight", module);
    add_matrix(w, layer, name, w->s->d, n);
}

static void add_mlp(struct writer *w, const char *layer, enum toy_kind kind)
{
    if (kind == TOY_DENSE) {
        add_swiglu(w, layer, "mlp", w->s->ff);
        return;
    }
    add_matrix(w, layer, "mlp.gate.weight", EXPERTS, w->s->d);
    add_matrix(w, layer, "mlp.shared_expert_gate.weight", 1, w->s->d);
    add_swiglu(w, layer, "mlp.shared_expert", w->s->ff_shared);
    if (kind == TOY_MOE) {
        add(w, layer, "mlp.experts.gate_up_proj", w->s->scale, 0.0, 3, EXPERTS, 2 * w->s->ff_expert,
            w->s->d);
        add(w, layer, "mlp.experts.down_proj", w->s->scale, 0.0, 3, EXPERTS, w->s->d,
            w->s->ff_expert);
        return;
    }
    for (int e = 0; e < EXPERTS; e++) {
        char module[64];
        (void)snprintf(module, sizeof module, "mlp.experts.%d", e);
        add_swiglu(w, layer, module, w->s->ff_expert);
    }
}

static void write_config(const char *dir, enum toy_kind kind, const struct shape *s)
{
    static const char *const types[] = {"qwen3_5_text", "qwen3_5_moe_text", "qwen3_next"};
    char path[512], moe[256] = "";
    if (kind != TOY_DENSE)
        (void)snprintf(
            moe, sizeof moe,
            "\"num_experts\": %d, \"num_experts_per_tok\": %d, \"moe_intermediate_size\": %d, "
            "\"shared_expert_intermediate_size\": %d, \"norm_topk_prob\": true, ",
            EXPERTS, TOP, s->ff_expert, s->ff_shared);
    (void)snprintf(path, sizeof path, "%s/config.json", dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    if (kind == TOY_MOE) (void)fprintf(f, "{\"model_type\": \"qwen3_5_moe\", \"text_config\": ");
    (void)fprintf(
        f,
        "{\"model_type\": \"%s\", \"vocab_size\": %d, \"hidden_size\": %d, \"num_hidden_layers\": "
        "%d, "
        "\"num_attention_heads\": %d, \"num_key_value_heads\": %d, \"head_dim\": %d, "
        "\"linear_num_key_heads\": %d, \"linear_num_value_heads\": %d, \"linear_key_head_dim\": "
        "%d, "
        "\"linear_value_head_dim\": %d, \"linear_conv_kernel_dim\": %d, \"intermediate_size\": %d, "
        "%s"
        "\"layer_types\": [\"linear_attention\", \"full_attention\", \"linear_attention\"], "
        "\"rms_norm_eps\": 1e-6, \"max_position_embeddings\": 4096, \"hidden_act\": \"silu\", "
        "\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 10000.0, "
        "\"partial_rotary_factor\": 0.5}, \"partial_rotary_factor\": 0.5, "
        "\"tie_word_embeddings\": %s, \"eos_token_id\": 1}",
        types[kind], VOCAB, s->d, N_LAYERS, s->heads, s->kv_heads, s->head_dim, s->k_heads,
        s->v_heads, s->d_k, s->d_v, KERNEL, s->ff, moe, kind == TOY_DENSE ? "true" : "false");
    if (kind == TOY_MOE) (void)fprintf(f, ", \"tie_word_embeddings\": false}");
    assert_int_equal(fclose(f), 0);
}

void toy_model_write(const char *dir, enum toy_kind kind)
{
    struct writer *w = calloc(1, sizeof *w);
    char layer[64], path[512];
    struct qrn_error err;
    assert_non_null(w);
    w->s = kind == narrow(kind) ? &small : &wide;
    w->rng.state = 17 + (uint64_t)kind;
    kind = narrow(kind);
    w->prefix = kind == TOY_MOE ? "model.language_model." : "model.";
    add(w, w->prefix, "embed_tokens.weight", 0.5, 0.0, 2, VOCAB, w->s->d, 0);
    add(w, w->prefix, "norm.weight", 0.1, 0.0, 1, w->s->d, 0, 0);
    if (kind != TOY_DENSE) add(w, "", "lm_head.weight", 0.5, 0.0, 2, VOCAB, w->s->d, 0);
    for (int i = 0; i < N_LAYERS; i++) {
        (void)snprintf(layer, sizeof layer, "%slayers.%d.", w->prefix, i);
        add(w, layer, "input_layernorm.weight", 0.1, 0.0, 1, w->s->d, 0, 0);
        add(w, layer, "post_attention_layernorm.weight", 0.1, 0.0, 1, w->s->d, 0, 0);
        if (i == 1)
            add_attention(w, layer);
        else
            add_linear(w, layer, kind);
        add_mlp(w, layer, kind);
    }
    (void)snprintf(path, sizeof path, "%s/model.safetensors", dir);
    if (qrn_safetensors_write(path, w->tensors, w->n, NULL, &err) != QRN_OK)
        fail_msg("%s", err.text);
    for (size_t i = 0; i < w->n; i++) {
        union {
            const void *in;
            void *out;
        } name = {.in = w->tensors[i].name}, data = {.in = w->tensors[i].data};
        free(name.out);
        free(data.out);
    }
    write_config(dir, kind, w->s);
    free(w);
}

const char *toy_model_make(enum toy_kind kind)
{
    static char dir[512];
    (void)snprintf(dir, sizeof dir, "%s", temp_path("toy"));
    (void)mkdir(dir, 0700);
    toy_model_write(dir, kind);
    return dir;
}
