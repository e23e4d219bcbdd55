/* SPDX-License-Identifier: MIT
 * Text and token ids: byte-level BPE tokenizers (the Qwen2 and Qwen3.5 families), both directions,
 * whole texts or token by token.
 *
 *     struct qrn_token_list ids = {0};
 *     qrn_tokenizer_encode(tokenizer, "Once upon a time", 16, 0, &ids, &err);
 *     ...
 *     qrn_detokenizer_push(detokenizer, id, &piece, &err);
 *     fwrite(piece.bytes, 1, piece.n_bytes, stdout);        whole characters only
 */
#ifndef QUERN_TEXT_H
#define QUERN_TEXT_H

#include <stdbool.h>
#include <quern/host.h>
#include <quern/span.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A tokenizer: immutable from its creation to its end, so every function that takes a const one
 * may be called from any number of threads at the same time. */
struct qrn_tokenizer;

/** Token ids in memory of the library.  Starts as zeros; functions append. */
struct qrn_token_list {
    int32_t *ids;
    size_t n_ids;
    size_t n_reserved;              /* private */
    struct qrn_allocator allocator; /* private */
};

/** Bytes in memory of the library, followed by a NUL that n_bytes does not count (bytes is NULL
 * until a function has appended).  Starts as zeros; functions append. */
struct qrn_string {
    char *bytes;
    size_t n_bytes;
    size_t n_reserved;              /* private */
    struct qrn_allocator allocator; /* private */
};

/** Frees the memory and sets zeros.  To use the memory again, set n_ids or n_bytes to 0 instead. */
QRN_API void qrn_token_list_free(struct qrn_token_list *list);
QRN_API void qrn_string_free(struct qrn_string *string);

/** What a token is.  The values are those of GGUF files. */
enum qrn_token_type {
    QRN_TOKEN_NONE = 0,         /* no token has this id */
    QRN_TOKEN_NORMAL = 1,       /* a piece of text, made by merges */
    QRN_TOKEN_UNKNOWN = 2,      /* as NORMAL */
    QRN_TOKEN_CONTROL = 3,      /* "<|im_end|>": found in a text, and shown, only if asked for */
    QRN_TOKEN_USER_DEFINED = 4, /* "<think>": always found in a text, always shown */
    QRN_TOKEN_UNUSED = 5,       /* padding of the vocabulary: never made, decodes to nothing */
    QRN_TOKEN_BYTE = 6          /* as NORMAL */
};

/* --- creating --- */

/**
 * Reads a Hugging Face tokenizer.json (UTF-8, in memory, not needed afterwards).
 *
 * config is the tokenizer_config.json beside it, from which eos, bos and pad are taken (a name that
 * is no token counts as none), or zeros if there is no such file.  Accepted: model BPE without
 * dropout, prefixes, suffixes or byte fallback; merges
 * as "a b" or ["a", "b"]; no normalizer, NFC, or a Sequence of these; a pre-tokenizer that is a
 * Sequence of Split by the Qwen2 or the Qwen3.5 regex (as Hugging Face or llama.cpp write it) and
 * ByteLevel without prefix space and regex; decoder ByteLevel; added tokens without lstrip, rstrip
 * and single_word.  Truncation, padding and the post-processor are not read: no token is added to
 * what a text says.  Special added tokens become CONTROL, others USER_DEFINED.
 *
 * host may be NULL.  *out is written on success only, and is freed with qrn_tokenizer_free.
 *
 * Errors: QRN_ERR_FORMAT (not JSON, wrong types, an id used twice or above 4 x the number of tokens
 *         + 65536, a merge of or to a token that does not exist, two entries of one name),
 *         QRN_ERR_UNSUPPORTED (anything valid beyond the list above; the text names it, and quotes
 *         a regex that is not known; an added token of more than 1024 bytes, or one that is
 *         "normalized" and not in NFC), QRN_ERR_MEMORY.
 */
QRN_API enum qrn_status qrn_tokenizer_create_json(struct qrn_span json, struct qrn_span config,
                                                  const struct qrn_host *host,
                                                  struct qrn_tokenizer **out,
                                                  struct qrn_error *err);

/** A tokenizer as plain arrays: what GGUF files hold. */
struct qrn_tokenizer_tables {
    const struct qrn_span *tokens; /* [n_tokens], by id.  CONTROL and USER_DEFINED as they are in a
                                    * text; others with each byte as a character, U+0120 for a space
                                    * and so on (GPT-2's alphabet) */
    const int32_t *types;          /* [n_tokens] of qrn_token_type; NULL: all NORMAL */
    size_t n_tokens;
    const struct qrn_span *merges; /* [n_merges] "left right", first applied first */
    size_t n_merges;
    const char *pre;               /* the split: "qwen2" or "qwen35" */
    bool keep_decomposed;          /* false: texts are brought to NFC as Hugging Face does for these
                                    * two families (llama.cpp does not) */
    bool ignore_merges;            /* true: a word that is a token is not taken apart */
    int32_t bos, eos, pad;         /* ids, or -1 */
};

/**
 * Makes a tokenizer from arrays, which are copied.  The same token twice is allowed: a text gets
 * the lower id.  Of a pair that is merged twice the first counts.
 *
 * Errors: QRN_ERR_ARGUMENT (tables or out NULL, more than 2^31 - 1 tokens or merges),
 *         QRN_ERR_UNSUPPORTED (pre is NULL or not known; a CONTROL or USER_DEFINED token of more
 *         than 1024 bytes), QRN_ERR_FORMAT (a type out of range, bos, eos or pad that is no id and
 *         not -1, a merge without a space or of or to a token that does not exist),
 *         QRN_ERR_MEMORY.
 */
QRN_API enum qrn_status qrn_tokenizer_create(const struct qrn_tokenizer_tables *tables,
                                             const struct qrn_host *host,
                                             struct qrn_tokenizer **out, struct qrn_error *err);

/** NULL is allowed.  No detokenizer of it may be in use. */
QRN_API void qrn_tokenizer_free(struct qrn_tokenizer *tokenizer);

/* --- looking --- */

/** The highest id + 1.  A model may have more rows; those ids have no token. */
QRN_API int32_t qrn_tokenizer_vocab_size(const struct qrn_tokenizer *tokenizer);

/** The id named, or -1 if the file does not say. */
QRN_API int32_t qrn_tokenizer_bos(const struct qrn_tokenizer *tokenizer);
QRN_API int32_t qrn_tokenizer_eos(const struct qrn_tokenizer *tokenizer);
QRN_API int32_t qrn_tokenizer_pad(const struct qrn_tokenizer *tokenizer);

/**
 * The bytes that a token stands for (CONTROL tokens too; for ordinary tokens any bytes, perhaps
 * half a character) and its type.  bytes may be NULL.  QRN_TOKEN_NONE and no bytes for an id
 * without a token.  The span lives as long as the tokenizer.
 */
QRN_API enum qrn_token_type qrn_tokenizer_token(const struct qrn_tokenizer *tokenizer, int32_t id,
                                                struct qrn_span *bytes);

/** The id of the token that stands for exactly these bytes, or -1: CONTROL and USER_DEFINED tokens
 * first, then ordinary ones; the lowest id where there are several. */
QRN_API int32_t qrn_tokenizer_find(const struct qrn_tokenizer *tokenizer, const char *bytes,
                                   size_t n_bytes);

/* --- texts to ids --- */

enum qrn_encode_flags {
    QRN_ENCODE_CONTROL = 1 /* "<|im_end|>" in the text is the token; without: six ordinary ones.
                            * For text of one's own, such as a filled template; never for input */
};

/**
 * Appends the ids of a text to list; nothing is put before or after them.
 *
 * The text may be any bytes, NUL included; text may be NULL if n_bytes is 0.  Each maximal part
 * that is not UTF-8 counts as one U+FFFD (as the WHATWG encoding standard says, and as Python's
 * "replace" does).  Then: added tokens are cut out, leftmost and longest first; the pieces between
 * are brought to NFC if the tokenizer says so, split into words, and merged.  Time is n log n at
 * worst.
 *
 * The result of encoding two texts one after the other is in general not that of the joined text.
 * On failure list is as it was.
 *
 * Errors: QRN_ERR_MEMORY, QRN_ERR_LIMIT (a text of 2^30 bytes or more), QRN_ERR_UNSUPPORTED (the
 *         vocabulary has no token for a byte of the text, which real ones have),
 *         QRN_ERR_ARGUMENT (a pointer is NULL, a flag is not known).
 */
QRN_API enum qrn_status qrn_tokenizer_encode(const struct qrn_tokenizer *tokenizer,
                                             const char *text, size_t n_bytes, unsigned flags,
                                             struct qrn_token_list *list, struct qrn_error *err);

/* --- ids to texts --- */

enum qrn_decode_flags {
    QRN_DECODE_CONTROL = 1 /* CONTROL tokens are shown; without: they are left out */
};

/**
 * Appends the text of n_ids ids to string: always UTF-8.  The bytes of all tokens are joined first,
 * then each maximal part that is not UTF-8 becomes one U+FFFD.  No space is added or removed.
 * On failure string is as it was.
 *
 * Errors: QRN_ERR_ARGUMENT (an id without a token; a pointer is NULL; a flag is not known),
 *         QRN_ERR_MEMORY.
 */
QRN_API enum qrn_status qrn_tokenizer_decode(const struct qrn_tokenizer *tokenizer,
                                             const int32_t *ids, size_t n_ids, unsigned flags,
                                             struct qrn_string *string, struct qrn_error *err);

/** Decodes token by token.  One thread at a time. */
struct qrn_detokenizer;

/** flags as for qrn_tokenizer_decode.  The tokenizer must live longer.
 * Errors: QRN_ERR_ARGUMENT (a pointer is NULL, a flag is not known), QRN_ERR_MEMORY. */
QRN_API enum qrn_status qrn_detokenizer_create(const struct qrn_tokenizer *tokenizer,
                                               unsigned flags, struct qrn_detokenizer **out,
                                               struct qrn_error *err);

/**
 * Takes the next id; text becomes what can be shown now: whole UTF-8 characters, often none.  A
 * character begun by this token is kept until a later one ends it.  All texts joined, that of
 * qrn_detokenizer_finish included, are what qrn_tokenizer_decode gives for all ids.
 * text is valid until the next call with the same detokenizer.
 *
 * Errors: QRN_ERR_ARGUMENT (an id without a token; the detokenizer is as it was, text is empty).
 */
QRN_API enum qrn_status qrn_detokenizer_push(struct qrn_detokenizer *detokenizer, int32_t id,
                                             struct qrn_span *text, struct qrn_error *err);

/** Ends the text: U+FFFD if a character was left unfinished, else nothing.  The detokenizer can
 * then be used for another text. */
QRN_API struct qrn_span qrn_detokenizer_finish(struct qrn_detokenizer *detokenizer);

/** NULL is allowed. */
QRN_API void qrn_detokenizer_free(struct qrn_detokenizer *detokenizer);

#ifdef __cplusplus
}
#endif
#endif
