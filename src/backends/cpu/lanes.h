/* SPDX-License-Identifier: MIT
 * The lanes of a device, and the threads that take them through the steps of a recording. */
#ifndef QUERN_BACKENDS_CPU_LANES_H
#define QUERN_BACKENDS_CPU_LANES_H

#include "backends/cpu/cpu.h"
#include "core/device_impl.h"

struct qrn_cpu_lanes;

/* Errors: QRN_ERR_MEMORY, QRN_ERR_DEVICE. */
enum qrn_status qrn_cpu_lanes_create(int n_lanes, uint64_t features, const struct qrn_allocator *a,
                                     struct qrn_cpu_lanes **out, struct qrn_error *err);
void qrn_cpu_lanes_destroy(struct qrn_cpu_lanes *lanes, const struct qrn_allocator *a);

/* Runs the steps on n_lanes lanes with as many threads of the pool; near: as of struct qrn_cpu_lane; taken: a number for
 * each step. */
enum qrn_status qrn_cpu_lanes_run(struct qrn_cpu_lanes *lanes,
                                  const struct qrn_thread_pool *threads, int n_lanes,
                                  const struct qrn_step *steps, size_t n_steps, bool near,
                                  void *scratch, _Atomic int64_t *taken, struct qrn_error *err);

#endif
