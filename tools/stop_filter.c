/* SPDX-License-Identifier: MIT
 * Finds stop texts in a stream, showing each byte as soon as it cannot begin one. */
#include "stop_filter.h"

#include <stdlib.h>
#include <string.h>

static bool append(struct stop_filter *f, struct qrn_span bytes)
{
    if (f->n_shown > 0) {
        f->n_bytes -= f->n_shown;
        memmove(f->bytes, f->bytes + f->n_shown, f->n_bytes);
        f->n_shown = 0;
    }
    const size_t n = f->n_bytes + bytes.n_bytes;
    if (n > f->n_reserved || !f->bytes) {
        char *more = realloc(f->bytes, 2 * n + 64);
        if (!more) return false;
        f->bytes = more;
        f->n_reserved = 2 * n + 64;
    }
    if (bytes.n_bytes > 0) memcpy(f->bytes + f->n_bytes, bytes.bytes, bytes.n_bytes);
    f->n_bytes = n;
    return true;
}

/* The first place where a stop text stands whole, or with part also where one may have begun;
 * n_bytes if there is none. */
static size_t find(const struct stop_filter *f, bool part)
{
    for (size_t i = 0; i < f->n_bytes; i++) {
        const size_t n_left = f->n_bytes - i;
        for (size_t s = 0; s < f->stops->n; s++) {
            const size_t n = strlen(f->stops->at[s]);
            if (n > n_left && !part) continue;
            if (memcmp(f->bytes + i, f->stops->at[s], n < n_left ? n : n_left) == 0) return i;
        }
    }
    return f->n_bytes;
}

enum stop_result stop_filter_push(struct stop_filter *f, struct qrn_span bytes,
                                  struct qrn_span *show)
{
    if (!append(f, bytes)) return STOP_NO_MEMORY;
    size_t n = find(f, false);
    const bool found = n < f->n_bytes;
    if (!found) n = find(f, true);
    *show = (struct qrn_span){f->bytes, n};
    f->n_shown = found ? f->n_bytes : n;
    return found ? STOP_FOUND : STOP_NO;
}

struct qrn_span stop_filter_finish(struct stop_filter *f)
{
    const struct qrn_span rest = {f->bytes, f->n_bytes - f->n_shown};
    if (f->bytes) memmove(f->bytes, f->bytes + f->n_shown, rest.n_bytes);
    f->n_bytes = f->n_shown = 0;
    return rest;
}

void stop_filter_free(struct stop_filter *f)
{
    free(f->bytes);
    *f = (struct stop_filter){.stops = f->stops};
}
