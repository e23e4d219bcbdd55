/* SPDX-License-Identifier: MIT
 * A kernel: one way to run an op on one kind of device.  One file, one struct, one row in the
 * backend's kernels.inc, best first. */
#ifndef QUERN_CORE_KERNEL_H
#define QUERN_CORE_KERNEL_H

#include <stdbool.h>
#include "core/op.h"

struct qrn_kernel {
    enum qrn_op_id op;
    const char *name; /* backend.op.variant */
    uint64_t needs;   /* features of the device, all of them */
    uint64_t wants;   /* and those without which it stands behind all others that can run */
    /* Which calls it serves and how, for people; NULL: all of the op. */
    const char *serves;
    /* What run can do, exactly; args have passed the op's check.  NULL: everything. */
    bool (*supports)(const void *args);
    /* Memory for the whole call, uninitialised, 64-byte aligned; NULL: none. */
    size_t (*scratch_bytes)(const void *args, int n_threads);
    /* Does the work of one lane; what a lane is, the backend says (struct qrn_cpu_lane *). */
    void (*run)(void *lane, const void *args);
    /* Size of an output that the device lays out as it likes (matmul_pack); NULL otherwise. */
    size_t (*output_bytes)(const void *args);
};

#endif
