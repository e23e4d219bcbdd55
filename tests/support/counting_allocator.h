/* SPDX-License-Identifier: MIT
 * An allocator that counts, can fail at the n-th call and has a limit.  Thread-safe. */
#ifndef TESTS_SUPPORT_COUNTING_ALLOCATOR_H
#define TESTS_SUPPORT_COUNTING_ALLOCATOR_H

#include <pthread.h>
#include <stdbool.h>
#include <quern/host.h>

struct counting_allocator {
    pthread_mutex_t mutex;
    size_t live_bytes, peak_bytes, live_blocks;
    size_t n_calls;  /* of alloc, failed ones included */
    size_t fail_at;  /* the call that fails, from 1; 0: none */
    bool fail_after; /* and every call after it */
    size_t limit;    /* calls that would take live_bytes above it fail; 0: none */
    size_t n_failed, n_over_limit;
    size_t n_bad_frees; /* with another size than allocated: should be 0 */
};

void counting_allocator_init(struct counting_allocator *c);
/* Zeroes the counters and limits; live blocks stay counted. */
void counting_allocator_reset(struct counting_allocator *c);
struct qrn_host counting_host(struct counting_allocator *c);

/* The same counters for jansson's memory; NULL: malloc again.  A setting of the whole process: do
 * not change it while JSON values are alive. */
void counting_allocator_take_jansson(struct counting_allocator *c);

#endif
