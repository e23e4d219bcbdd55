/* SPDX-License-Identifier: MIT
 * Memory that is read in order and was not read lately: weights of few rows, rows of activations.
 *
 * A line is asked for twice: for the second cache early enough to hide memory, for the first one before
 * it is read.  With one of the two alone what the processor asks for by itself comes and goes with
 * the pace of the loop: 10 to 18 GB/s for a core of a Xeon, 16 to 18 with both.  What loops ask for that do more than read,
 * as those of weights, wants to be asked for earlier: one row of Q4_K had 22.7 GB/s of two cores with 3 KB and 512 bytes,
 * 27.3 with 16 and 3 KB.  A Zen 4 asks well by itself (QRN_CPU_STREAMS), and the second request is in its way: one core
 * got 55 % of what reading alone got of one row of Q4_K with 3 KB and 512 bytes, 85 without any.  A Zen 5 does not
 * (QRN_CPU_DEEP_STREAMS), and wants both equally early: 71 % without, 79 with these two, 99. */
#ifndef QUERN_BACKENDS_CPU_AHEAD_H
#define QUERN_BACKENDS_CPU_AHEAD_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes ahead, for the second cache and for the first.  in_groups: where a walk knows them (matmul_ahead),
 * rather whole groups of weights, as many as it takes. */
struct ahead {
    ptrdiff_t far, near;
    bool in_groups;
};

#define AHEAD_WEIGHTS ((struct ahead){16384, 3072, true})
#define AHEAD_ROWS    ((struct ahead){3072, 512, false})

/* To be called for each n bytes, where they are read. */
static inline void ask_ahead_by(const struct ahead a, const void *at, size_t n)
{
    const char *p = at;
    for (size_t i = 0; i < n; i += 64) {
        __builtin_prefetch(p + a.far + i, 0, 2);
        __builtin_prefetch(p + a.near + i, 0, 3);
    }
}

static inline void ask_ahead(const void *at, size_t n)
{
    ask_ahead_by(AHEAD_ROWS, at, n);
}

#endif
