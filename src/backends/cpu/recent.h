/* SPDX-License-Identifier: MIT
 * Which weights were read a moment ago: a small model's stay in caches from one token to the next, and are asked for
 * otherwise than those that come from memory (ahead.h). */
#ifndef QUERN_BACKENDS_CPU_RECENT_H
#define QUERN_BACKENDS_CPU_RECENT_H

#include <stdbool.h>
#include "core/device_impl.h"

enum { QRN_CPU_RECENT_RUNS = 8 };

/* The last runs with products, and what they read; all 0 at first. */
struct qrn_cpu_recent {
    struct {
        uint64_t weights; /* which ones */
        size_t n_bytes;
    } runs[QRN_CPU_RECENT_RUNS];
    int next; /* the one that is replaced next */
};

/* Notes a run.  Whether its weights are near: one of the last runs had the same ones, and all weights that were read
 * from then on fit into half of cache_bytes (states, keys and activations want the other one). */
bool qrn_cpu_recent_run(struct qrn_cpu_recent *recent, const struct qrn_step *steps, size_t n_steps,
                        size_t cache_bytes);

#endif
