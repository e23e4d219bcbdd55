/* SPDX-License-Identifier: MIT
 * Which weights were read a moment ago. */
#include "backends/cpu/recent.h"

#include <quern/ops_matmul.h>

static const struct qrn_tensor *weights_of(const struct qrn_step *step)
{
    if (step->kernel->op == QRN_OP_matmul) return &((const struct qrn_matmul_args *)step->args)->w;
    if (step->kernel->op == QRN_OP_matmul_id)
        return &((const struct qrn_matmul_id_args *)step->args)->w;
    return NULL;
}

static bool were_read(const struct qrn_cpu_recent *recent, uint64_t weights, size_t n_bytes,
                      size_t most)
{
    for (int back = 1; back <= QRN_CPU_RECENT_RUNS && n_bytes <= most; back++) {
        const int i = (recent->next + QRN_CPU_RECENT_RUNS - back) % QRN_CPU_RECENT_RUNS;
        if (recent->runs[i].weights == weights) return true;
        n_bytes += recent->runs[i].n_bytes < most ? recent->runs[i].n_bytes : most;
    }
    return false;
}

bool qrn_cpu_recent_run(struct qrn_cpu_recent *recent, const struct qrn_step *steps, size_t n_steps,
                        size_t cache_bytes)
{
    const uint64_t prime = 0x100000001b3u;
    uint64_t weights = 0xcbf29ce484222325u;
    size_t n_bytes = 0;
    for (size_t i = 0; i < n_steps; i++) {
        const struct qrn_tensor *w = weights_of(&steps[i]);
        if (!w) continue;
        weights = (weights ^ (uintptr_t)w->data) * prime;
        n_bytes += w->n_bytes;
    }
    if (n_bytes == 0) return false;
    const bool near = were_read(recent, weights, n_bytes, cache_bytes / 2);
    recent->runs[recent->next].weights = weights;
    recent->runs[recent->next].n_bytes = n_bytes;
    recent->next = (recent->next + 1) % QRN_CPU_RECENT_RUNS;
    return near;
}
