/* SPDX-License-Identifier: MIT
 * Unicode normalisation form C, where it changes something. */
#ifndef QUERN_TEXT_NFC_H
#define QUERN_TEXT_NFC_H

#include <stdbool.h>
#include "text/growing.h"

/* Working memory and the result; all with their allocator set. */
struct qrn_nfc {
    struct qrn_scratch text, characters, sorting;
};

/* *out becomes text in NFC: text itself, or memory of nfc that is valid until its next use.
 * text is valid UTF-8.  n log n. */
enum qrn_status qrn_nfc_apply(struct qrn_nfc *nfc, struct qrn_span text, struct qrn_span *out,
                              struct qrn_error *err);

/* True only if c never changes and never joins with a character before it. */
bool qrn_nfc_is_inert(int32_t c);

#endif
