/* SPDX-License-Identifier: MIT
 * How text is cut into words before merging: the regular expressions of Qwen2 and Qwen3.5, written
 * as code. */
#ifndef QUERN_TEXT_SPLIT_H
#define QUERN_TEXT_SPLIT_H

#include <quern/span.h>
#include <stdbool.h>

struct qrn_split {
    bool has_marks;  /* Qwen3.5: marks (category M) are parts of words */
    bool has_long_s; /* 'S is written (?i:'s): U+017F is an s too */
};

/* The split that a regex asks for; false if it is not known. */
bool qrn_split_from_regex(struct qrn_span regex, struct qrn_split *split);

/* The split that GGUF files call "qwen2" or "qwen35"; false if it is not known. */
bool qrn_split_from_name(struct qrn_span name, struct qrn_split *split);

/* Bytes of the first word of text, which is valid UTF-8 and not empty: at least 1.  Taking word by
 * word is linear in all. */
size_t qrn_split_first(const struct qrn_split *split, const char *text, size_t n_bytes);

#endif
