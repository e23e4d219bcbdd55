/* SPDX-License-Identifier: MIT
 * Encoders: byte for byte as llama-quantize, on made-up values and on the fairy model; how near the
 * decoded values are; values that no model should have. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "formats/blocks.h"
#include "support/sha256.h"
#include "support/tensor_file.h"

static void encode_hash(enum qrn_dtype dtype, const float *x, size_t n, char hex[65])
{
    size_t n_bytes;
    assert_true(qrn_row_bytes(dtype, (int64_t)n, &n_bytes));
    uint8_t *blocks = malloc(n_bytes);
    assert_non_null(blocks);
    memset(blocks, 0xaa, n_bytes);
    qrn_encoder(dtype)(x, blocks, n);
    sha256_hex(blocks, n_bytes, hex);
    free(blocks);
}

static void test_golden_sources(void **state)
{
    (void)state;
    struct tensor_file file;
    tensor_file_open("tests/data/block_goldens.safetensors", &file);
    int n_types = 0;
    const char *key;
    json_t *info;
    json_object_foreach(file.header, key, info) {
        const char *dot = strstr(key, ".source");
        if (!dot) continue;
        char name[32], raw_name[48];
        snprintf(name, sizeof name, "%.*s", (int)(dot - key), key);
        snprintf(raw_name, sizeof raw_name, "%s.raw", name);
        size_t n_source, n_raw;
        const uint8_t *source = tensor_file_find(&file, key, &n_source);
        const uint8_t *raw = tensor_file_find(&file, raw_name, &n_raw);
        float *x = malloc(n_source);
        uint8_t *got = malloc(n_raw);
        assert_true(source && raw && x && got);
        memcpy(x, source, n_source);
        qrn_encoder(qrn_dtype_from_name(name))(x, got, n_source / 4);
        assert_memory_equal(got, raw, n_raw);
        free(x);
        free(got);
        n_types++;
    }
    tensor_file_close(&file);
    assert_int_equal(n_types, 8);
}

/* --- the inputs of scripts/make_block_goldens.py --- */

enum { N_VALUES = 16 * 256 };

static const char *const kinds[] = {"uniform", "bell",  "shifted",  "negative", "sparse",
                                    "steps",   "heavy", "runs",     "constant", "zero",
                                    "tiny",    "huge",  "bfloat"};
#define N_KINDS (sizeof kinds / sizeof *kinds)

static uint32_t bits(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static float bell(uint32_t *state)
{
    int32_t sum = -(1 << 25);
    for (int i = 0; i < 4; i++) sum += (int32_t)bits(state);
    return (float)sum * 0x1p-25f;
}

static void make_values(size_t kind, float *x)
{
    uint32_t state = (uint32_t)kind + 1;
    const char *name = kinds[kind];
    float scale = 0;
    for (int i = 0; i < N_VALUES; i++) {
        x[i] = 0;
        if (strcmp(name, "uniform") == 0) {
            x[i] = (float)((int32_t)bits(&state) - (1 << 23)) * 0x1p-23f;
        } else if (strcmp(name, "bell") == 0) {
            x[i] = bell(&state);
        } else if (strcmp(name, "shifted") == 0) {
            x[i] = bell(&state) + 3;
        } else if (strcmp(name, "negative") == 0) {
            x[i] = -fabsf(bell(&state));
        } else if (strcmp(name, "sparse") == 0) {
            if (bits(&state) % 8 == 0) x[i] = bell(&state);
        } else if (strcmp(name, "steps") == 0) {
            x[i] = (float)(bits(&state) % 9) - 4;
        } else if (strcmp(name, "heavy") == 0) {
            const float b = bell(&state);
            x[i] = b * ldexpf(1, (int)(bits(&state) % 24) - 12);
        } else if (strcmp(name, "runs") == 0) {
            if (i % 16 == 0) {
                const bool some = bits(&state) % 4 != 0;
                scale = some ? ldexpf(1, -(int)(bits(&state) % 12)) : 0;
            }
            x[i] = bell(&state) * scale;
        } else if (strcmp(name, "constant") == 0) {
            if (i % 256 == 0) scale = bell(&state);
            x[i] = scale;
        } else if (strcmp(name, "tiny") == 0) {
            x[i] = bell(&state) * 0x1p-60f;
        } else if (strcmp(name, "huge") == 0) {
            x[i] = bell(&state) * 0x1p100f;
        } else if (strcmp(name, "bfloat") == 0) {
            x[i] = qrn_bits_float(qrn_float_bits(bell(&state)) & 0xffff0000u);
        }
    }
}

static void test_made_up_values(void **state)
{
    (void)state;
    json_t *hashes = json_load_file("tests/data/encode_sha256.json", 0, NULL);
    assert_int_equal(json_object_size(hashes), 20);
    float *x = malloc(N_VALUES * sizeof *x);
    assert_non_null(x);
    for (size_t k = 0; k < N_KINDS; k++) {
        make_values(k, x);
        const char *name;
        json_t *by_kind;
        json_object_foreach(hashes, name, by_kind) {
            const char *want = json_string_value(json_object_get(by_kind, kinds[k]));
            char hex[65];
            encode_hash(qrn_dtype_from_name(name), x, N_VALUES, hex);
            if (strncmp(hex, want, 32) != 0)
                fail_msg("%s of %s values: %.32s, should be %s", name, kinds[k], hex, want);
        }
    }
    free(x);
    json_decref(hashes);
}

/* --- the fairy model: what llama.cpp's converter makes of the Hugging Face files --- */

struct fairy {
    struct tensor_file files[2];
};

static const uint8_t *fairy_find(const struct fairy *fairy, const char *name, size_t *n_bytes)
{
    for (int i = 0; i < 2; i++) {
        const uint8_t *data = tensor_file_find(&fairy->files[i], name, n_bytes);
        if (data) return data;
    }
    return NULL;
}

/* How a tensor changes on its way into a GGUF file. */
enum change {
    NONE,
    PLUS_ONE,
    HEAD_ROWS, /* the value heads' rows from grouped to tiled order, heads of `unit` rows */
    HEAD_COLUMNS,
};

static const struct {
    const char *gguf, *hf;
    enum change change;
    int unit, first; /* rows or columns of a head; rows before the value heads */
} names[] = {
    {"attn_norm.weight", "input_layernorm.weight", PLUS_ONE, 0, 0},
    {"post_attention_norm.weight", "post_attention_layernorm.weight", PLUS_ONE, 0, 0},
    {"attn_q_norm.weight", "self_attn.q_norm.weight", PLUS_ONE, 0, 0},
    {"attn_k_norm.weight", "self_attn.k_norm.weight", PLUS_ONE, 0, 0},
    {"attn_q.weight", "self_attn.q_proj.weight", NONE, 0, 0},
    {"attn_k.weight", "self_attn.k_proj.weight", NONE, 0, 0},
    {"attn_v.weight", "self_attn.v_proj.weight", NONE, 0, 0},
    {"attn_output.weight", "self_attn.o_proj.weight", NONE, 0, 0},
    {"ffn_gate.weight", "mlp.gate_proj.weight", NONE, 0, 0},
    {"ffn_up.weight", "mlp.up_proj.weight", NONE, 0, 0},
    {"ffn_down.weight", "mlp.down_proj.weight", NONE, 0, 0},
    {"attn_qkv.weight", "linear_attn.in_proj_qkv.weight", HEAD_ROWS, 128, 512},
    {"attn_gate.weight", "linear_attn.in_proj_z.weight", HEAD_ROWS, 128, 0},
    {"ssm_alpha.weight", "linear_attn.in_proj_a.weight", HEAD_ROWS, 1, 0},
    {"ssm_beta.weight", "linear_attn.in_proj_b.weight", HEAD_ROWS, 1, 0},
    {"ssm_conv1d.weight", "linear_attn.conv1d.weight", HEAD_ROWS, 128, 512},
    {"ssm_dt.bias", "linear_attn.dt_bias", HEAD_ROWS, 1, 0},
    {"ssm_norm.weight", "linear_attn.norm.weight", NONE, 0, 0},
    {"ssm_out.weight", "linear_attn.out_proj.weight", HEAD_COLUMNS, 128, 0},
};

enum { KEY_HEADS = 2, VALUE_HEADS = 4 };

/* Head `old` of the grouped order stands at this place of the tiled one. */
static size_t tiled(size_t old)
{
    const size_t r = VALUE_HEADS / KEY_HEADS;
    return old % r * KEY_HEADS + old / r;
}

/* Moves runs of `run` values, VALUE_HEADS of them. */
static void reorder(float *x, size_t run)
{
    float *copy = malloc(VALUE_HEADS * run * sizeof *copy);
    assert_non_null(copy);
    memcpy(copy, x, VALUE_HEADS * run * sizeof *copy);
    for (size_t old = 0; old < VALUE_HEADS; old++)
        memcpy(x + tiled(old) * run, copy + old * run, run * sizeof *x);
    free(copy);
}

/* The tensor under its GGUF name, as floats; *n values, to be freed. */
static float *fairy_load(const struct fairy *fairy, const char *gguf, size_t *n)
{
    char hf[128];
    int layer, used = 0;
    enum change change = NONE;
    size_t unit = 0, first = 0, n_bytes;
    if (sscanf(gguf, "blk.%d.%n", &layer, &used) == 1 && used > 0) {
        hf[0] = 0;
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            if (strcmp(gguf + used, names[i].gguf) == 0) {
                snprintf(hf, sizeof hf, "model.layers.%d.%s", layer, names[i].hf);
                change = names[i].change;
                unit = (size_t)names[i].unit;
                first = (size_t)names[i].first;
            }
    } else if (strcmp(gguf, "output_norm.weight") == 0) {
        strcpy(hf, "model.norm.weight");
        change = PLUS_ONE;
    } else {
        strcpy(hf, "model.embed_tokens.weight");
    }
    const uint8_t *data = fairy_find(fairy, hf, &n_bytes);
    if (!data) fail_msg("%s: no %s in the model", gguf, hf);
    *n = n_bytes / 2;
    float *x = malloc(*n * sizeof *x);
    assert_non_null(x);
    qrn_decoder(QRN_BF16)(data, x, *n);
    switch (change) {
    case NONE: break;
    case PLUS_ONE:
        for (size_t i = 0; i < *n; i++) x[i] += 1;
        break;
    case HEAD_ROWS: {
        const size_t row = *n / (first + VALUE_HEADS * unit);
        reorder(x + first * row, unit * row);
        break;
    }
    case HEAD_COLUMNS:
        for (size_t i = 0; i < *n; i += VALUE_HEADS * unit) reorder(x + i, unit);
        break;
    }
    return x;
}

/* All tensors of all targets but ssm_a, which is -exp() of the model's A_log by a library whose
 * exp() is not rounded correctly.  Mixtures have most tensors in common with pure types: each pair
 * of tensor and type is encoded once. */
static void test_fairy(void **state)
{
    (void)state;
    json_t *root = json_load_file("tests/data/fairy_quantised_sha256.json", 0, NULL);
    json_t *types = json_object_get(root, "types");
    assert_int_equal(json_object_size(types), 20);
    struct fairy fairy;
    tensor_file_open("models/fairy/model-00001-of-00002.safetensors", &fairy.files[0]);
    tensor_file_open("models/fairy/model-00002-of-00002.safetensors", &fairy.files[1]);
    size_t n_hashed = 0;
    const char *name, *type;
    json_t *tensors, *unused;
    json_object_foreach(json_object_get(types, "Q4_0"), name, unused) {
        if (strstr(name, "ssm_a") && !strstr(name, "ssm_alpha")) continue;
        size_t n;
        float *x = fairy_load(&fairy, name, &n);
        char known[24][2][40]; /* dtype, digest */
        size_t n_known = 0;
        json_object_foreach(types, type, tensors) {
            const json_t *pair = json_object_get(tensors, name);
            const char *dtype = json_string_value(json_array_get(pair, 0));
            const char *want = json_string_value(json_array_get(pair, 1));
            size_t k = 0;
            while (k < n_known && strcmp(known[k][0], dtype) != 0) k++;
            if (k == n_known) {
                char hex[65];
                encode_hash(qrn_dtype_from_name(dtype), x, n, hex);
                snprintf(known[k][0], sizeof known[k][0], "%s", dtype);
                snprintf(known[k][1], sizeof known[k][1], "%.32s", hex);
                n_known++;
            }
            if (strcmp(known[k][1], want) != 0)
                fail_msg("%s: %s as %s: %s, should be %s", type, name, dtype, known[k][1], want);
            n_hashed++;
        }
        free(x);
    }
    assert_int_equal(n_hashed, 20 * (108 - 6));
    tensor_file_close(&fairy.files[0]);
    tensor_file_close(&fairy.files[1]);
    json_decref(root);
}

/* Root mean square error over root mean square of values, for each type, just above what is
 * measured: a worse encoder, or a decoder that reads other bits, would be seen. */
static void test_error_of_round_trip(void **state)
{
    (void)state;
    static const struct {
        enum qrn_dtype dtype;
        double bound;
    } bounds[] = {
        {QRN_F32, 0},       {QRN_F16, 3e-4},    {QRN_BF16, 2.5e-3}, {QRN_Q8_K, 0.01},
        {QRN_Q8_0, 0.007},  {QRN_Q6_K, 0.02},   {QRN_Q5_K, 0.05},   {QRN_Q5_1, 0.05},
        {QRN_Q5_0, 0.05},   {QRN_Q4_K, 0.08},   {QRN_Q4_1, 0.1},    {QRN_Q4_0, 0.12},
        {QRN_IQ4_NL, 0.09}, {QRN_IQ4_XS, 0.09}, {QRN_NVFP4, 0.12},  {QRN_MXFP4, 0.15},
        {QRN_Q3_K, 0.2},    {QRN_Q2_K, 0.35},   {QRN_TQ1_0, 0.8},   {QRN_TQ2_0, 0.8},
        {QRN_Q1_0, 0.7},    {QRN_Q2_0, 0.7},
    };
    float *x = malloc(N_VALUES * sizeof *x), *y = malloc(N_VALUES * sizeof *y);
    uint8_t *blocks = malloc(N_VALUES * sizeof *x);
    assert_true(x && y && blocks);
    make_values(1, x);
    size_t n_encoders = 0;
    for (int t = 0; t < QRN_DTYPE_COUNT; t++) n_encoders += qrn_encoder((enum qrn_dtype)t) != NULL;
    assert_int_equal(n_encoders, sizeof bounds / sizeof *bounds);
    for (size_t i = 0; i < n_encoders; i++) {
        qrn_encoder(bounds[i].dtype)(x, blocks, N_VALUES);
        qrn_decoder(bounds[i].dtype)(blocks, y, N_VALUES);
        double error = 0, power = 0;
        for (int j = 0; j < N_VALUES; j++) {
            error += ((double)y[j] - x[j]) * ((double)y[j] - x[j]);
            power += (double)x[j] * x[j];
        }
        const double relative = sqrt(error / power);
        if (!(relative <= bounds[i].bound && relative >= bounds[i].bound / 4))
            fail_msg("%s: error %.5f, expected up to %.5f", qrn_dtype_info(bounds[i].dtype)->name,
                     relative, bounds[i].bound);
    }
    free(x);
    free(y);
    free(blocks);
}

/* The sums that go with the codes of Q8_K. */
static void test_q8_k_sums(void **state)
{
    (void)state;
    float x[N_VALUES];
    uint8_t block[292];
    make_values(0, x);
    qrn_encoder(QRN_Q8_K)(x, block, 256);
    for (int s = 0; s < 16; s++) {
        int sum = 0;
        for (int l = 0; l < 16; l++) sum += (int8_t)block[4 + 16 * s + l];
        assert_int_equal((int16_t)(block[260 + 2 * s] | block[261 + 2 * s] << 8), sum);
    }
}

/* NaN, infinities, the ends of the range, subnormals, alone and among ordinary values: every byte
 * is written, none beyond, the same bytes each time, and they decode. */
static void test_hostile_values(void **state)
{
    (void)state;
    static const float hostile[] = {NAN,      -NAN,     INFINITY, -INFINITY, 0x1.fffffep127f,
                                    -0x1p127f, 0x1p-149f, -0x1p-126f, 0x1p-130f, -0.0f,
                                    1e30f,    -1e-30f,  65504,    65520};
    const size_t n_hostile = sizeof hostile / sizeof *hostile;
    for (int t = 0; t < QRN_DTYPE_COUNT; t++) {
        const qrn_encode_fn encode = qrn_encoder((enum qrn_dtype)t);
        if (!encode) continue;
        const struct qrn_dtype_info *info = qrn_dtype_info((enum qrn_dtype)t);
        const size_t n = (size_t)info->block_elements * 2, n_bytes = (size_t)info->block_bytes * 2;
        float *x = malloc(n * sizeof *x), *y = malloc(n * sizeof *y);
        uint8_t *a = malloc(n_bytes + 1), *b = malloc(n_bytes + 1);
        assert_true(x && y && a && b);
        uint32_t random = (uint32_t)t;
        for (size_t round = 0; round < 400; round++) {
            for (size_t i = 0; i < n; i++) {
                x[i] = bell(&random);
                if (round < n_hostile) x[i] = hostile[round];
                else if (bits(&random) % 100 < round % 100)
                    x[i] = hostile[bits(&random) % n_hostile];
                else if (round > 200) /* any bits at all */
                    x[i] = qrn_bits_float(bits(&random) << 8 ^ bits(&random));
            }
            memset(a, 0x55, n_bytes + 1);
            memset(b, 0xaa, n_bytes + 1);
            encode(x, a, n);
            encode(x, b, n);
            assert_int_equal(a[n_bytes], 0x55);
            assert_memory_equal(a, b, n_bytes);
            qrn_decoder((enum qrn_dtype)t)(a, y, n);
        }
        free(x);
        free(y);
        free(a);
        free(b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_sources),
        cmocka_unit_test(test_made_up_values),
        cmocka_unit_test(test_fairy),
        cmocka_unit_test(test_error_of_round_trip),
        cmocka_unit_test(test_q8_k_sums),
        cmocka_unit_test(test_hostile_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
