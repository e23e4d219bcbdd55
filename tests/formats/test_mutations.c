/* SPDX-License-Identifier: MIT
 * Damaged files: a clear error or a correct load, whatever the damage; within memory and time. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "model/config.h"
#include "support/counting_allocator.h"
#include "support/gguf_bytes.h"
#include "support/memory_source.h"
#include "support/mutate.h"

#define N_MUTATIONS 20000
#define MAX_FILES   4

/* One round: files under names, an allocator that holds the bound, a clock. */
struct round {
    struct memory_file files[MAX_FILES];
    struct memory_source memory;
    struct counting_allocator counter;
    struct qrn_source source;
    struct qrn_host host;
    double slowest, started;
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void begin(struct round *r, size_t n_files, size_t i)
{
    size_t n_bytes = 0;
    for (size_t k = 0; k < n_files; k++) n_bytes += r->files[k].n_bytes;
    counting_allocator_reset(&r->counter);
    r->counter.limit = 4 * n_bytes + ((size_t)64 << 20);
    r->memory = (struct memory_source){r->files, n_files, i % 2 == 0, 0, false};
    r->source = memory_source_interface(&r->memory);
    r->started = now();
}

static void end(struct round *r, size_t i, enum qrn_status s, const struct qrn_error *e,
                struct mutate_tally *tally)
{
    const double seconds = now() - r->started;
    if (seconds > r->slowest) r->slowest = seconds;
    if (s == QRN_OK)
        tally->n_accepted++;
    else
        mutate_count_refusal(tally, e->text);
    if (s != QRN_OK && (!e->text[0] || e->status != s))
        fail_msg("mutation %zu: %s without a text of its own", i, qrn_status_name(s));
    if (r->counter.n_over_limit) fail_msg("mutation %zu asked for too much: %s", i, e->text);
    if (r->counter.live_bytes) fail_msg("mutation %zu leaves %zu bytes", i, r->counter.live_bytes);
    if (r->counter.n_bad_frees) fail_msg("mutation %zu frees another size", i);
    if (r->memory.n_open || r->memory.misused) fail_msg("mutation %zu misuses the source", i);
    if (seconds > 1) fail_msg("mutation %zu took %.1f s", i, seconds);
}

static void start(struct round *r)
{
    memset(r, 0, sizeof *r);
    counting_allocator_init(&r->counter);
    r->host = counting_host(&r->counter);
}

/* shallow: refusals before anything of the structure was looked at. */
static void finish(const struct round *r, const char *title, const struct mutate_tally *tally,
                   const char *const *shallow, size_t n_shallow)
{
    const size_t n = mutate_refused_by(tally, shallow, n_shallow);
    mutate_print(tally, title);
    printf("%s: %zu of %d got past magic, counts and syntax; slowest %.4f s\n", title,
           (size_t)N_MUTATIONS - n, N_MUTATIONS, r->slowest);
    assert_int_equal(tally->n_accepted + tally->n_refused, N_MUTATIONS);
    assert_true(2 * n <= N_MUTATIONS);
    assert_true(tally->n_kinds >= 12);
    assert_true(tally->n_accepted > 0);
}

/* Reads every byte that the archive promises. */
static unsigned touch(const struct qrn_archive *a)
{
    unsigned sum = 0;
    for (size_t i = 0; i < a->n_tensors; i++) {
        const struct qrn_archive_tensor *t = &a->tensors[i];
        assert_true(t->n_dims >= 0 && t->n_dims <= QRN_ARCHIVE_MAX_DIMS);
        assert_non_null(t->type_name);
        assert_ptr_equal(qrn_archive_find(a, t->name), t);
        for (size_t k = 0; k < t->n_bytes; k++) sum += t->data[k];
    }
    return sum;
}

static void touch_values(const struct qrn_gguf *g)
{
    for (size_t i = 0; i < g->n_values; i++) {
        const struct qrn_gguf_value *v = &g->values[i];
        if (v->type != QRN_GGUF_ARRAY || v->as.array.n == 0) continue;
        if (v->element == QRN_GGUF_STRING) {
            struct qrn_span *spans = malloc((size_t)v->as.array.n * sizeof *spans);
            volatile char last = 0;
            assert_true(qrn_gguf_strings(v, spans, v->as.array.n));
            for (uint64_t k = 0; k < v->as.array.n; k++)
                if (spans[k].n_bytes) last = spans[k].bytes[spans[k].n_bytes - 1];
            (void)last;
            free(spans);
        } else {
            double f;
            assert_true(qrn_gguf_array_f64(v, v->as.array.n - 1, &f));
        }
    }
}

static enum qrn_status load_gguf(struct round *r, const char *name, struct qrn_error *e)
{
    struct qrn_gguf g;
    enum qrn_status s = qrn_gguf_open(name, &r->source, &r->host, &g, e);
    if (s != QRN_OK) return s;
    (void)touch(&g.archive);
    touch_values(&g);
    struct qrn_model_config c;
    s = qrn_config_from_gguf(&g, &r->host, &c, e);
    if (s == QRN_OK) qrn_config_free(&c);
    qrn_gguf_close(&g);
    return s;
}

/* Part i of three, of four tensors each. */
static struct mutate_bytes make_part(int i)
{
    struct gguf_bytes b = {0};
    gguf_put_header(&b, 3, 4, i == 0 ? 4 : 3);
    gguf_put_u16(&b, "split.no", (uint16_t)i);
    gguf_put_u16(&b, "split.count", 3);
    gguf_put_u32(&b, "split.tensors.count", 12);
    if (i == 0) gguf_put_text(&b, "general.architecture", "qwen35");
    for (int k = 0; k < 4; k++) {
        char name[8];
        snprintf(name, sizeof name, "t%d.%d", i, k);
        gguf_put_tensor(&b, name, 1, (const uint64_t[]){8}, 0, 32 * (uint64_t)k);
    }
    gguf_put_data(&b, 128);
    return (struct mutate_bytes){b.bytes, b.n};
}

/* A set with one file damaged, gone, doubled or in the place of another. */
static enum qrn_status mutate_set(struct round *r, struct mutate_random *random, size_t i,
                                  struct qrn_error *e)
{
    static const char *const names[] = {"x-00001-of-00003.gguf", "x-00002-of-00003.gguf",
                                        "x-00003-of-00003.gguf"};
    struct mutate_bytes parts[3];
    for (int k = 0; k < 3; k++) parts[k] = make_part(k);
    const size_t which = mutate_below(random, 3), other = mutate_below(random, 3);
    const size_t how = mutate_below(random, 8);
    if (how > 2) mutate_gguf(random, &parts[which]);
    for (size_t k = 0; k < 3; k++)
        r->files[k] = (struct memory_file){names[k], parts[k].bytes, parts[k].n};
    if (how == 0) r->files[which].name = "gone";
    if (how == 1)
        r->files[which].bytes = parts[other].bytes, r->files[which].n_bytes = parts[other].n;
    begin(r, 3, i);
    const enum qrn_status s = load_gguf(r, names[how == 2 ? which : 0], e);
    for (int k = 0; k < 3; k++) free(parts[k].bytes);
    return s;
}

static void gguf(void **state)
{
    (void)state;
    static const char *const shallow[] = {"not a GGUF file", "GGUF version", "big-endian",
                                          "inside the header", "claims #"};
    static struct mutate_tally tally;
    static struct round r;
    struct mutate_random random = {1};
    const struct gguf_bytes toy = gguf_toy();
    start(&r);
    for (size_t i = 0; i < N_MUTATIONS; i++) {
        struct qrn_error e = {0};
        if (i % 8 == 7) {
            const enum qrn_status s = mutate_set(&r, &random, i, &e);
            end(&r, i, s, &e, &tally);
            continue;
        }
        struct mutate_bytes b = mutate_copy(toy.bytes, toy.n);
        mutate_gguf(&random, &b);
        r.files[0] = (struct memory_file){"toy.gguf", b.bytes, b.n};
        begin(&r, 1, i);
        const enum qrn_status s = load_gguf(&r, "toy.gguf", &e);
        end(&r, i, s, &e, &tally);
        free(b.bytes);
    }
    finish(&r, "GGUF", &tally, shallow, sizeof shallow / sizeof *shallow);
    free(toy.bytes);
}

/* --- safetensors --- */

#define T(name, dtype, shape, offsets)                                                             \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" offsets "]}"

static struct mutate_bytes make_safetensors(const char *header, size_t n_data)
{
    struct gguf_bytes b = {0};
    gguf_put_uint(&b, strlen(header), 8);
    gguf_put(&b, header, strlen(header));
    for (size_t i = 0; i < n_data; i++) gguf_put_uint(&b, i, 1);
    return (struct mutate_bytes){b.bytes, b.n};
}

static struct mutate_bytes make_shard(int i)
{
    if (i == 1)
        return make_safetensors(
            "{" T("b.scales", "BF16", "4,2", "0,16") "," T("b.weight", "U32", "4,1", "16,32") "}",
            32);
    return make_safetensors(
        "{\"__metadata__\":{\"format\":\"pt\"}," T("a.weight", "F32", "2,4", "0,32") "," T(
            "a.bias", "F16", "4",
            "32,40") "," T("empty", "F64", "0,3",
                           "40,40") "," T("norm", "BF16", "4",
                                          "40,48") "," T("scalar", "I64", "",
                                                         "48,56") "," T("codes", "F8_E4M3", "2,2,2",
                                                                        "56,64") "}  ",
        64);
}

static enum qrn_status load_safetensors(struct round *r, bool dir, struct qrn_error *e)
{
    struct qrn_safetensors st;
    const enum qrn_status s =
        dir ? qrn_safetensors_open_dir(NULL, &r->source, &r->host, &st, e)
            : qrn_safetensors_open("model.safetensors", &r->source, &r->host, &st, e);
    if (s != QRN_OK) return s;
    (void)touch(&st.archive);
    qrn_safetensors_close(&st);
    return s;
}

static void mutate_shards(struct round *r, struct mutate_random *random, size_t i,
                          struct mutate_tally *tally)
{
    static const char index_text[] =
        "{\"metadata\":{\"total_size\":96},\"weight_map\":{\"a.weight\":\"s1\",\"a.bias\":\"s1\","
        "\"empty\":\"s1\",\"norm\":\"s1\",\"scalar\":\"s1\",\"codes\":\"s1\",\"b.scales\":\"s2\","
        "\"b.weight\":\"s2\"}}";
    struct qrn_error e = {0};
    struct mutate_bytes index = mutate_copy(index_text, sizeof index_text - 1);
    struct mutate_bytes shards[2] = {make_shard(0), make_shard(1)};
    const size_t how = mutate_below(random, 10), which = mutate_below(random, 2);
    if (how < 6) mutate_json(random, &index);
    if (how > 6) mutate_safetensors(random, &shards[which]);
    r->files[0] = (struct memory_file){"model.safetensors.index.json", index.bytes, index.n};
    r->files[1] = (struct memory_file){"s1", shards[0].bytes, shards[0].n};
    r->files[2] = (struct memory_file){how == 6 ? "gone" : "s2", shards[1].bytes, shards[1].n};
    begin(r, 3, i);
    const enum qrn_status s = load_safetensors(r, true, &e);
    end(r, i, s, &e, tally);
    free(index.bytes);
    free(shards[0].bytes);
    free(shards[1].bytes);
}

static void safetensors(void **state)
{
    (void)state;
    static const char *const shallow[] = {"not a safetensors file", "the header of", "JSON"};
    static struct mutate_tally tally;
    static struct round r;
    struct mutate_random random = {2};
    start(&r);
    for (size_t i = 0; i < N_MUTATIONS; i++) {
        if (i % 4 == 3) {
            mutate_shards(&r, &random, i, &tally);
            continue;
        }
        struct qrn_error e = {0};
        struct mutate_bytes b = make_shard(i % 8 == 0);
        mutate_safetensors(&random, &b);
        r.files[0] = (struct memory_file){"model.safetensors", b.bytes, b.n};
        begin(&r, 1, i);
        const enum qrn_status s = load_safetensors(&r, false, &e);
        end(&r, i, s, &e, &tally);
        free(b.bytes);
    }
    finish(&r, "safetensors", &tally, shallow, sizeof shallow / sizeof *shallow);
}

/* --- config.json --- */

static const char *const configs[] = {
    "{\"architectures\":[\"Qwen3_5ForCausalLM\"],\"model_type\":\"qwen3_5_text\",\"hidden_size\":"
    "64,"
    "\"intermediate_size\":128,\"num_hidden_layers\":4,\"num_attention_heads\":4,"
    "\"num_key_value_heads\":2,\"head_dim\":32,\"hidden_act\":\"silu\",\"rms_norm_eps\":1e-06,"
    "\"linear_conv_kernel_dim\":4,\"linear_key_head_dim\":16,\"linear_value_head_dim\":16,"
    "\"linear_num_key_heads\":2,\"linear_num_value_heads\":4,\"layer_types\":[\"linear_attention\","
    "\"linear_attention\",\"linear_attention\",\"full_attention\"],\"max_position_embeddings\":256,"
    "\"partial_rotary_factor\":0.25,\"rope_parameters\":{\"mrope_section\":[2,1,1],"
    "\"rope_theta\":10000.0,\"rope_type\":\"default\"},\"tie_word_embeddings\":true,"
    "\"vocab_size\":512,\"eos_token_id\":[510,511],\"bos_token_id\":null,\"attn_output_gate\":"
    "true}",
    "{\"model_type\":\"qwen3_5_moe\",\"text_config\":{\"model_type\":\"qwen3_5_moe_text\","
    "\"hidden_size\":64,\"num_hidden_layers\":8,\"full_attention_interval\":4,\"num_experts\":8,"
    "\"num_experts_per_tok\":2,\"moe_intermediate_size\":32,\"shared_expert_intermediate_size\":32,"
    "\"vocab_size\":512,\"eos_token_id\":511,\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4.0,"
    "\"original_max_position_embeddings\":128,\"mscale\":1.0,\"mscale_all_dim\":1.0}},"
    "\"quantization\":{\"group_size\":64,\"bits\":4,\"mode\":\"affine\",\"model.layers.0.mlp."
    "gate\":"
    "{\"group_size\":64,\"bits\":8},\"lm_head\":false},\"tie_word_embeddings\":false}",
    "{\"model_type\":\"qwen3_next\",\"hidden_size\":64,\"num_hidden_layers\":4,\"num_experts\":8,"
    "\"num_experts_per_tok\":2,\"norm_topk_prob\":true,\"mlp_only_layers\":[],"
    "\"decoder_sparse_step\":1,\"rope_theta\":1e7,\"vocab_size\":512,\"quantization_config\":"
    "{\"quant_method\":\"fp8\",\"weight_block_size\":[128,128]}}",
};

static void config(void **state)
{
    (void)state;
    static const char *const shallow[] = {"JSON"};
    static const char generation[] = "{\"eos_token_id\":[1,2,3],\"pad_token_id\":0}";
    static struct mutate_tally tally;
    static struct round r;
    struct mutate_random random = {3};
    start(&r);
    for (size_t i = 0; i < N_MUTATIONS; i++) {
        struct qrn_error e = {0};
        const char *text = configs[i % 3];
        struct mutate_bytes b = mutate_copy(text, strlen(text));
        struct mutate_bytes g = mutate_copy(generation, sizeof generation - 1);
        mutate_json(&random, i % 16 == 15 ? &g : &b);
        r.files[0] = (struct memory_file){"config.json", b.bytes, b.n};
        r.files[1] = (struct memory_file){"generation_config.json", g.bytes, g.n};
        begin(&r, 2, i);
        struct qrn_model_config c;
        const enum qrn_status s = qrn_config_from_hf((const char *)b.bytes, b.n,
                                                     (const char *)g.bytes, g.n, &r.host, &c, &e);
        if (s == QRN_OK) {
            assert_true(c.n_layers >= 1 && c.d_model >= 1 && c.n_rot <= c.head_dim);
            (void)qrn_config_mlx_quant(&c, "lm_head");
            qrn_config_free(&c);
        }
        end(&r, i, s, &e, &tally);
        free(b.bytes);
        free(g.bytes);
    }
    finish(&r, "config.json", &tally, shallow, sizeof shallow / sizeof *shallow);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gguf),
        cmocka_unit_test(safetensors),
        cmocka_unit_test(config),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
