/* SPDX-License-Identifier: MIT
 * GPT-2's alphabet: vocabulary files write each byte of a token as one printable character. */
#ifndef QUERN_TEXT_ALPHABET_H
#define QUERN_TEXT_ALPHABET_H

#include <stdbool.h>
#include <quern/span.h>

/* Turns the characters of text into the bytes they stand for: at most text.n_bytes of them, written
 * to out, which may be where text is.  false if one is not of the alphabet or text is not UTF-8. */
bool qrn_alphabet_bytes(struct qrn_span text, char *out, size_t *n_out);

#endif
