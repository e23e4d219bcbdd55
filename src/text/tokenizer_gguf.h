/* SPDX-License-Identifier: MIT
 * The tokenizer of a GGUF file. */
#ifndef QUERN_TEXT_TOKENIZER_GGUF_H
#define QUERN_TEXT_TOKENIZER_GGUF_H

#include <quern/text.h>
#include "formats/gguf.h"

/* Makes the tokenizer that the keys tokenizer.ggml.* describe; gguf is not needed afterwards.  A
 * file without one (no tokenizer.ggml.model, or "none"/"no_vocab") gives QRN_OK and *out == NULL.
 *
 * Texts are brought to NFC, which GGUF files do not say, but the tokenizers they were made from do
 * (Qwen2 and Qwen3.5; llama.cpp does not normalise, so its ids of decomposed text differ).
 *
 * Errors: QRN_ERR_UNSUPPORTED (a model other than "gpt2", a pre other than "qwen2" and "qwen35"),
 *         QRN_ERR_FORMAT (a key that is missing or of a wrong type or length, and as
 *         qrn_tokenizer_create), QRN_ERR_MEMORY. */
enum qrn_status qrn_tokenizer_create_gguf(const struct qrn_gguf *gguf, const struct qrn_host *host,
                                          struct qrn_tokenizer **out, struct qrn_error *err);

#endif
