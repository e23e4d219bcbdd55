/* SPDX-License-Identifier: MIT
 * GGUF bytes put together by hand, right or wrong. */
#include "support/gguf_bytes.h"

#include <stdlib.h>
#include <string.h>
#include "support/memory_source.h"

void gguf_put(struct gguf_bytes *g, const void *bytes, size_t n)
{
    if (g->n_reserved < g->n + n + 1) {
        g->n_reserved = 2 * (g->n + n + 1);
        g->bytes = realloc(g->bytes, g->n_reserved);
        if (!g->bytes) abort();
    }
    if (n) memcpy(g->bytes + g->n, bytes, n);
    g->n += n;
}

void gguf_put_uint(struct gguf_bytes *g, uint64_t value, size_t n)
{
    uint8_t bytes[8];
    for (size_t i = 0; i < 8; i++) bytes[i] = (uint8_t)(value >> (8 * i));
    gguf_put(g, bytes, n);
}

void gguf_put_string(struct gguf_bytes *g, const char *text)
{
    gguf_put_uint(g, strlen(text), 8);
    gguf_put(g, text, strlen(text));
}

void gguf_put_header(struct gguf_bytes *g, uint32_t version, uint64_t n_tensors, uint64_t n_values)
{
    gguf_put(g, "GGUF", 4);
    gguf_put_uint(g, version, 4);
    gguf_put_uint(g, n_tensors, 8);
    gguf_put_uint(g, n_values, 8);
}

static void put_scalar(struct gguf_bytes *g, const char *key, uint32_t type, uint64_t bits,
                       size_t n)
{
    gguf_put_string(g, key);
    gguf_put_uint(g, type, 4);
    gguf_put_uint(g, bits, n);
}

void gguf_put_u32(struct gguf_bytes *g, const char *key, uint32_t value)
{
    put_scalar(g, key, 4, value, 4);
}

void gguf_put_u16(struct gguf_bytes *g, const char *key, uint16_t value)
{
    put_scalar(g, key, 2, value, 2);
}

void gguf_put_f32(struct gguf_bytes *g, const char *key, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_scalar(g, key, 6, bits, 4);
}

void gguf_put_text(struct gguf_bytes *g, const char *key, const char *value)
{
    gguf_put_string(g, key);
    gguf_put_uint(g, 8, 4);
    gguf_put_string(g, value);
}

void gguf_put_tensor(struct gguf_bytes *g, const char *name, uint32_t n_dims, const uint64_t *ne,
                     uint32_t type, uint64_t offset)
{
    gguf_put_string(g, name);
    gguf_put_uint(g, n_dims, 4);
    for (uint32_t i = 0; i < n_dims; i++) gguf_put_uint(g, ne[i], 8);
    gguf_put_uint(g, type, 4);
    gguf_put_uint(g, offset, 8);
}

void gguf_put_data(struct gguf_bytes *g, size_t n)
{
    while (g->n % 32 != 0) gguf_put_uint(g, 0, 1);
    for (size_t i = 0; i < n; i++) gguf_put_uint(g, i * 37 + 11, 1);
}

static void put_array_head(struct gguf_bytes *g, const char *key, uint32_t element, uint64_t n)
{
    gguf_put_string(g, key);
    gguf_put_uint(g, 9, 4);
    gguf_put_uint(g, element, 4);
    gguf_put_uint(g, n, 8);
}

static void put_toy_values(struct gguf_bytes *g)
{
    static const struct {
        const char *key;
        uint32_t value;
    } sizes[] = {
        {"qwen35.block_count", 2},
        {"qwen35.context_length", 64},
        {"qwen35.embedding_length", 32},
        {"qwen35.feed_forward_length", 64},
        {"qwen35.attention.head_count", 2},
        {"qwen35.attention.head_count_kv", 1},
        {"qwen35.attention.key_length", 16},
        {"qwen35.attention.value_length", 16},
        {"qwen35.rope.dimension_count", 4},
        {"qwen35.ssm.conv_kernel", 4},
        {"qwen35.ssm.state_size", 8},
        {"qwen35.ssm.group_count", 2},
        {"qwen35.ssm.time_step_rank", 4},
        {"qwen35.ssm.inner_size", 32},
        {"qwen35.full_attention_interval", 2},
        {"tokenizer.ggml.eos_token_id", 5},
        {"general.alignment", 32},
    };
    static const char *const tokens[] = {"a", "b", "<|endoftext|>", "ab", "c", "<|im_end|>",
                                         "d", ""};
    static const uint32_t types[] = {1, 1, 3, 1, 1, 3, 1, 5};
    gguf_put_text(g, "general.architecture", "qwen35");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        gguf_put_u32(g, sizes[i].key, sizes[i].value);
    gguf_put_f32(g, "qwen35.attention.layer_norm_rms_epsilon", 1e-6f);
    gguf_put_f32(g, "qwen35.rope.freq_base", 1e7f);
    put_array_head(g, "qwen35.rope.dimension_sections", 5, 4);
    for (uint64_t i = 0; i < 4; i++) gguf_put_uint(g, i == 0 ? 2 : 0, 4);
    put_array_head(g, "qwen35.attention.recurrent_layers", 7, 2);
    gguf_put_uint(g, 1, 1);
    gguf_put_uint(g, 0, 1);
    put_array_head(g, "tokenizer.ggml.tokens", 8, 8);
    for (size_t i = 0; i < 8; i++) gguf_put_string(g, tokens[i]);
    put_array_head(g, "tokenizer.ggml.token_type", 5, 8);
    for (size_t i = 0; i < 8; i++) gguf_put_uint(g, types[i], 4);
    put_scalar(g, "test.u8", 0, 200, 1);
    put_scalar(g, "test.i8", 1, 0xfe, 1);
    put_scalar(g, "test.i16", 3, 0xfffe, 2);
    put_scalar(g, "test.bool", 7, 1, 1);
    put_scalar(g, "test.u64", 10, UINT64_MAX, 8);
    put_scalar(g, "test.i64", 11, (uint64_t)-5, 8);
    put_scalar(g, "test.f64", 12, 0x3ff8000000000000u, 8);
}

struct gguf_bytes gguf_toy(void)
{
    static const struct {
        const char *name;
        uint32_t n_dims;
        uint64_t ne[4];
        uint32_t type;
        size_t n_bytes;
    } tensors[] = {
        {"token_embd.weight", 2, {32, 8}, 8, 8 * 34},
        {"output_norm.weight", 1, {32}, 0, 128},
        {"blk.0.attn_norm.weight", 1, {32}, 0, 128},
        {"blk.0.attn_qkv.weight", 2, {32, 64}, 2, 64 * 18},
        {"blk.0.ssm_a", 1, {4}, 0, 16},
        {"blk.0.ssm_conv1d.weight", 2, {4, 64}, 0, 1024},
        {"blk.0.ssm_out.weight", 2, {32, 32}, 1, 2048},
        {"blk.1.attn_q.weight", 2, {32, 64}, 39, 64 * 17},
        {"blk.1.attn_k.weight", 2, {32, 16}, 30, 1024},
        {"blk.1.ffn_gate_exps.weight", 3, {256, 2, 2}, 12, 4 * 144},
        {"blk.1.strange", 2, {32, 2}, 77, 0},
        {"blk.1.empty", 2, {32, 0}, 8, 0},
    };
    const size_t n_tensors = sizeof tensors / sizeof *tensors;
    struct gguf_bytes g = {0};
    gguf_put_header(&g, 3, n_tensors, 31);
    put_toy_values(&g);
    uint64_t offset = 0;
    for (size_t i = 0; i < n_tensors; i++) {
        gguf_put_tensor(&g, tensors[i].name, tensors[i].n_dims, tensors[i].ne, tensors[i].type,
                        offset);
        offset += (tensors[i].n_bytes + 31) / 32 * 32;
    }
    gguf_put_data(&g, (size_t)offset);
    return g;
}

enum qrn_status gguf_open_bytes(const struct gguf_bytes *b, struct qrn_gguf *g,
                                struct qrn_error *err)
{
    static struct memory_file file;
    static struct memory_source memory;
    static struct qrn_source source;
    file = (struct memory_file){"m.gguf", b->bytes, b->n};
    memory = (struct memory_source){&file, 1, false, 0, false};
    source = memory_source_interface(&memory);
    return qrn_gguf_open("m.gguf", &source, NULL, g, err);
}
