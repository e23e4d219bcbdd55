/* SPDX-License-Identifier: MIT
 * quern bench --op: how long a call of a kernel takes. */
#ifndef QUERN_TOOLS_BENCH_TIME_H
#define QUERN_TOOLS_BENCH_TIME_H

#include "bench_cases.h"
#include "core/kernel.h"

/* A call on copies of its data, which are used in turn. */
struct bench_copies {
    struct bench_memory *memory;
    struct bench_case *cases;
    size_t n;
};

struct bench_time {
    double ns;        /* of a call: the median */
    size_t n_samples; /* that it is the median of */
    size_t n_calls;   /* of each sample */
};

/* By the device's own clock, if it has one: calls one after the other in a recording, replayed.  Else
 * by the host's: call by call.  seconds: about as long as it may take; slow calls get fewer samples. */
enum qrn_status bench_time(struct qrn_device *dev, const struct qrn_kernel *kernel,
                           const struct bench_copies *copies, double seconds,
                           struct bench_time *out, struct qrn_error *err);

#endif
