/* SPDX-License-Identifier: MIT
 * What a CPU kernel is given.  All lanes run the same kernel at the same time, each on its share;
 * how work is shared must never change a result. */
#ifndef QUERN_BACKENDS_CPU_H
#define QUERN_BACKENDS_CPU_H

#include "base/cpu_features.h"
#include "base/threads.h"
#include "core/kernel.h"

struct qrn_cpu_lane {
    int i, n;      /* this lane, of how many */
    void *scratch; /* shared by all lanes; what scratch_bytes asked for */
    struct qrn_barrier *barrier;
    _Atomic int64_t *taken; /* 0 when the kernel begins: what lanes have taken of what they share in turns */
    uint64_t features;      /* of the device: enum qrn_cpu_feature */
    bool near;              /* weights were read a moment ago, and are in caches still (recent.h) */
};

/* Until all lanes have come here, and what they wrote is seen by all. */
static inline void qrn_cpu_lane_wait(const struct qrn_cpu_lane *lane)
{
    qrn_barrier_wait(lane->barrier, lane->n);
}

/* Of items that lanes take in turns, so that none waits for one that is slower, the next one's number. */
static inline int64_t qrn_cpu_take(const struct qrn_cpu_lane *lane)
{
    return atomic_fetch_add(lane->taken, 1);
}

/* This lane's part of n items: contiguous, in multiples of grain but for the end. */
static inline void qrn_cpu_share(const struct qrn_cpu_lane *lane, int64_t n, int64_t grain,
                                 int64_t *begin, int64_t *end)
{
    const int64_t grains = (n + grain - 1) / grain;
    const int64_t b = grains * lane->i / lane->n * grain,
                  e = grains * (lane->i + 1) / lane->n * grain;
    *begin = b < n ? b : n;
    *end = e < n ? e : n;
}

#endif
