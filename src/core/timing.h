/* SPDX-License-Identifier: MIT
 * How long calls of one kernel take on a device that has a clock of its own: for benches. */
#ifndef QUERN_CORE_TIMING_H
#define QUERN_CORE_TIMING_H

#include "core/device_impl.h"

struct qrn_timing;

/* Elsewhere the host's clock around qrn_kernel_run is all there is. */
bool qrn_device_has_clock(const struct qrn_device *dev);

/* A recording of n calls, one after the other; args, which have passed the checks and which the kernel
 * supports, live as long.  All of it has been run once, step by step. */
enum qrn_status qrn_timing_create(struct qrn_device *dev, const struct qrn_kernel *kernel,
                                  const void *const *args, size_t n, struct qrn_timing **out,
                                  struct qrn_error *err);

/* What one replay took on the device.  behind: it is queued behind another replay, so that the time in
 * which the host launches it, which counts for short ones, is not in it. */
enum qrn_status qrn_timing_run(struct qrn_timing *timing, bool behind, double *ns,
                               struct qrn_error *err);
void qrn_timing_destroy(struct qrn_timing *timing); /* NULL is allowed */

/* What queued copies took, n_times of n_bytes, of two places in turn. */
enum qrn_status qrn_time_copies(struct qrn_device *dev, void *a, void *b, size_t n_bytes,
                                int n_times, double *ns, struct qrn_error *err);

#endif
