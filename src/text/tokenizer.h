/* SPDX-License-Identifier: MIT
 * What a tokenizer is made of, and how the readers of files make one. */
#ifndef QUERN_TEXT_TOKENIZER_H
#define QUERN_TEXT_TOKENIZER_H

#include "text/added.h"
#include "text/merges.h"
#include "text/split.h"
#include "text/vocab.h"

struct qrn_tokenizer {
    struct qrn_vocab vocab;
    struct qrn_merges merges;
    struct qrn_added added;      /* looked for in the text as it is */
    struct qrn_added normalised; /* looked for after NFC: "normalized": true in tokenizer.json */
    struct qrn_split split;
    bool is_nfc;         /* texts are brought to NFC */
    bool ignore_merges;  /* a word that is a token stays whole */
    int32_t bos, eos, pad;
    struct qrn_allocator allocator;
};

/* A tokenizer without tokens: the parts have their allocator and are zeros. */
enum qrn_status qrn_tokenizer_new(const struct qrn_host *host, struct qrn_tokenizer **out,
                                  struct qrn_error *err);

/* Makes control bytes of a file in err's text '?', so that a terminal does not obey them.  Returns
 * status. */
enum qrn_status qrn_tokenizer_refuse(enum qrn_status status, struct qrn_error *err);

#endif
