/* SPDX-License-Identifier: MIT
 * quern bench --op: how long a call of a kernel takes. */
#include "bench_time.h"

#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "core/timing.h"
#include "report.h"

enum {
    MOST_RUNS = 1000,
    SAMPLES = 20,
    FEWEST_CALLS = 20, /* of a recording */
    MOST_CALLS = 1024
};
#define RECORDING_NS 1e6 /* at least, as far as MOST_CALLS reach: what a launch costs is hidden */
#define LONG_NS      2e7 /* such a recording is not worth hiding what it costs to launch */
#define WARM_NS      5e7 /* a device that was idle takes so long to reach its speed */

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *samples, size_t n)
{
    qsort(samples, n, sizeof *samples, ascending);
    return samples[n / 2];
}

static enum qrn_status was_interrupted(struct qrn_error *err)
{
    return qrn_fail(err, QRN_ERR_CANCELLED, "interrupted");
}

/* Call i: the next copy, the next turn. */
static struct bench_case call_of(const struct bench_copies *copies, size_t i)
{
    struct bench_case c = copies->cases[i % copies->n];
    if (c.n_turns) {
        struct qrn_tensor *t = (struct qrn_tensor *)(void *)((char *)&c.args + c.turn_at);
        t->data = (char *)t->data + i % c.n_turns * c.turn_bytes;
    }
    return c;
}

/* --- the host's clock --- */

/* A first call warms up, unless it is so long that it is enough. */
static enum qrn_status time_by_host(struct qrn_device *dev, const struct qrn_kernel *kernel,
                                    const struct bench_copies *copies, double enough_ns,
                                    struct bench_time *out, struct qrn_error *err)
{
    double samples[MOST_RUNS], total = 0.0;
    size_t n = 0, turn = 0;
    for (bool warm = false; n < MOST_RUNS && total < enough_ns && !interrupted(); warm = true) {
        const struct bench_case c = call_of(copies, turn++);
        const int64_t begin = now_ns();
        QRN_TRY(qrn_kernel_run(dev, kernel, &c.args, err));
        const double sample = (double)(now_ns() - begin);
        if (!warm && sample < enough_ns) continue;
        samples[n++] = sample;
        total += sample;
    }
    if (n == 0) return was_interrupted(err);
    *out = (struct bench_time){.ns = median(samples, n), .n_samples = n, .n_calls = 1};
    return QRN_OK;
}

/* --- the device's clock --- */

/* How many calls a recording has and how often it runs, if a call takes ns. */
static void plan(const struct bench_copies *copies, double ns, double enough_ns, size_t *n_calls,
                 size_t *n_samples)
{
    const size_t turns = copies->cases->n_turns ? copies->cases->n_turns : 1;
    const double most = enough_ns / ns; /* calls in all */
    size_t n = FEWEST_CALLS;
    while (n < MOST_CALLS && (double)n * ns < RECORDING_NS) n *= 2;
    if (n < copies->n) n = copies->n;
    n = (n + turns - 1) / turns * turns;
    *n_samples = SAMPLES;
    if (copies->cases->once) {
        *n_calls = copies->n;
        return;
    }
    if ((double)n * SAMPLES > most) *n_samples = (size_t)(most / (double)n);
    if (*n_samples < 3) {
        *n_samples = 3;
        n = (size_t)(most / 3.0);
        n = n < turns ? turns : n / turns * turns;
        if ((double)n * 3 > most) *n_samples = 1;
    }
    *n_calls = n;
}

/* The recording of n calls, and of what they are given. */
struct recording {
    struct bench_case *calls;
    const void **args;
    struct qrn_timing *timing;
};

static void recording_free(struct recording *r)
{
    qrn_timing_destroy(r->timing);
    free(r->args);
    free(r->calls);
}

static enum qrn_status recording_make(struct qrn_device *dev, const struct qrn_kernel *kernel,
                                      const struct bench_copies *copies, size_t n,
                                      struct recording *r, struct qrn_error *err)
{
    *r = (struct recording){.calls = malloc(n * sizeof *r->calls),
                            .args = malloc(n * sizeof *r->args)};
    enum qrn_status status = QRN_OK;
    if (!r->calls || !r->args) status = qrn_fail(err, QRN_ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < n && status == QRN_OK; i++) {
        r->calls[i] = call_of(copies, i);
        r->args[i] = &r->calls[i].args;
    }
    if (status == QRN_OK) status = qrn_timing_create(dev, kernel, r->args, n, &r->timing, err);
    if (status != QRN_OK) recording_free(r);
    return status;
}

/* One call alone, roughly. */
static enum qrn_status estimate(struct qrn_device *dev, const struct qrn_kernel *kernel,
                                const struct bench_copies *copies, double *ns,
                                struct qrn_error *err)
{
    struct recording r;
    QRN_TRY(recording_make(dev, kernel, copies, 1, &r, err));
    const enum qrn_status status = qrn_timing_run(r.timing, false, ns, err);
    if (*ns < 100.0) *ns = 100.0;
    recording_free(&r);
    return status;
}

/* ns: of a call, roughly. */
static enum qrn_status sample_all(struct qrn_timing *timing, size_t n_calls, size_t n_samples,
                                  double ns, double warm_ns, struct bench_time *out,
                                  struct qrn_error *err)
{
    double samples[SAMPLES];
    const bool behind = (double)n_calls * ns < LONG_NS;
    for (double warm = 0.0; warm < warm_ns; warm += samples[0])
        QRN_TRY(qrn_timing_run(timing, false, &samples[0], err));
    for (size_t i = 0; i < n_samples; i++) {
        if (interrupted()) return was_interrupted(err);
        QRN_TRY(qrn_timing_run(timing, behind, &samples[i], err));
    }
    *out = (struct bench_time){.ns = median(samples, n_samples) / (double)n_calls,
                               .n_samples = n_samples,
                               .n_calls = n_calls};
    return QRN_OK;
}

static enum qrn_status time_by_device(struct qrn_device *dev, const struct qrn_kernel *kernel,
                                      const struct bench_copies *copies, double enough_ns,
                                      struct bench_time *out, struct qrn_error *err)
{
    double ns;
    size_t n_calls, n_samples;
    struct recording r;
    QRN_TRY(estimate(dev, kernel, copies, &ns, err));
    if (ns > enough_ns) {
        *out = (struct bench_time){.ns = ns, .n_samples = 1, .n_calls = 1};
        return QRN_OK;
    }
    plan(copies, ns, enough_ns, &n_calls, &n_samples);
    QRN_TRY(recording_make(dev, kernel, copies, n_calls, &r, err));
    const double warm_ns = enough_ns / 10.0 < WARM_NS ? enough_ns / 10.0 : WARM_NS;
    const enum qrn_status status = sample_all(r.timing, n_calls, n_samples, ns, warm_ns, out, err);
    recording_free(&r);
    return status;
}

enum qrn_status bench_time(struct qrn_device *dev, const struct qrn_kernel *kernel,
                           const struct bench_copies *copies, double seconds,
                           struct bench_time *out, struct qrn_error *err)
{
    if (qrn_device_has_clock(dev))
        return time_by_device(dev, kernel, copies, 1e9 * seconds, out, err);
    return time_by_host(dev, kernel, copies, 1e9 * seconds, out, err);
}
