/* SPDX-License-Identifier: MIT
 * The CPU as a device that is far away: its memory faults unless its work runs, work is done when
 * somebody waits for it and not before, and memory of the host that is shared with it may not change
 * until then.  Results have the bits of the CPU. */
#ifndef TESTS_SUPPORT_FAR_DEVICE_H
#define TESTS_SUPPORT_FAR_DEVICE_H

#include "core/device_impl.h"

/* Its bytes of memory; the test ends if it cannot be opened.  One at a time. */
struct qrn_device *far_device_open(int n_threads, size_t n_bytes);
void far_device_close(struct qrn_device *dev);
/* From now on memory of the host is not shared with it: the system has none to pin. */
void far_device_share_nothing(void);

/* Since it was opened: times that somebody waited for all, copies from and to the host, reads that
 * were queued and their bytes, recordings run; and what is allocated now. */
struct far_counts {
    long waits, uploads, writes, reads, fetches, submits, allocations, fetched_bytes;
};
struct far_counts far_device_counts(void);

#endif
