/* SPDX-License-Identifier: MIT
 * GGUF bytes put together by hand, right or wrong. */
#ifndef TESTS_SUPPORT_GGUF_BYTES_H
#define TESTS_SUPPORT_GGUF_BYTES_H

#include <stddef.h>
#include <stdint.h>
#include "formats/gguf.h"

struct gguf_bytes {
    uint8_t *bytes; /* malloced; free it */
    size_t n, n_reserved;
};

void gguf_put(struct gguf_bytes *g, const void *bytes, size_t n);
void gguf_put_uint(struct gguf_bytes *g, uint64_t value, size_t n);
void gguf_put_string(struct gguf_bytes *g, const char *text);
void gguf_put_header(struct gguf_bytes *g, uint32_t version, uint64_t n_tensors, uint64_t n_values);
void gguf_put_u32(struct gguf_bytes *g, const char *key, uint32_t value);
void gguf_put_u16(struct gguf_bytes *g, const char *key, uint16_t value);
void gguf_put_f32(struct gguf_bytes *g, const char *key, float value);
void gguf_put_text(struct gguf_bytes *g, const char *key, const char *value);
/* ne as in the file: innermost first. */
void gguf_put_tensor(struct gguf_bytes *g, const char *name, uint32_t n_dims, const uint64_t *ne,
                     uint32_t type, uint64_t offset);
/* Zeros up to a multiple of 32, then n bytes of data. */
void gguf_put_data(struct gguf_bytes *g, size_t n);

/* A whole little qwen35 model: right metadata, tensors of several types (one of an unknown type),
 * names as llama.cpp has them.  It can be opened; its matrices are far too small to run. */
struct gguf_bytes gguf_toy(void);

/* Opens b, which stays where it is, as m.gguf.  One at a time. */
enum qrn_status gguf_open_bytes(const struct gguf_bytes *b, struct qrn_gguf *g,
                                struct qrn_error *err);

#endif
