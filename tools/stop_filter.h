/* SPDX-License-Identifier: MIT
 * Finds stop texts in a stream, showing each byte as soon as it cannot begin one. */
#ifndef QUERN_TOOLS_STOP_FILTER_H
#define QUERN_TOOLS_STOP_FILTER_H

#include <stdbool.h>
#include <quern/span.h>
#include "options.h"

struct stop_filter {
    const struct text_list *stops; /* none of them empty */
    char *bytes;
    size_t n_bytes, n_reserved, n_shown; /* n_shown of them were given out */
};

enum stop_result { STOP_NO, STOP_FOUND, STOP_NO_MEMORY };

/* Takes the next bytes; *show is what can be shown now, valid until the next call.  After
 * STOP_FOUND that is all there is: the text before the first stop text. */
enum stop_result stop_filter_push(struct stop_filter *filter, struct qrn_span bytes,
                                  struct qrn_span *show);

/* The stream has ended: what was held back. */
struct qrn_span stop_filter_finish(struct stop_filter *filter);
void stop_filter_free(struct stop_filter *filter);

#endif
