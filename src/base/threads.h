/* SPDX-License-Identifier: MIT
 * A pool of threads of our own behind struct qrn_thread_pool, and the barrier for those inside. */
#ifndef QUERN_BASE_THREADS_H
#define QUERN_BASE_THREADS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <quern/host.h>

/* Cores that this process may run on, at least 1. */
int qrn_n_cores(void);

/* A pool of n threads: n - 1 of its own, which between runs look out for a while, then sleep, and the
 * caller's.  Errors: QRN_ERR_MEMORY, QRN_ERR_DEVICE. */
enum qrn_status qrn_threads_create(int n, const struct qrn_allocator *allocator,
                                   struct qrn_thread_pool *out, struct qrn_error *err);
void qrn_threads_destroy(struct qrn_thread_pool *pool, const struct qrn_allocator *allocator);

/* The same pool, with a run that does not wait for those who come late: fn(arg, i) of a thread that
 * has not begun when fn(arg, 0) returns is not called. */
struct qrn_thread_pool qrn_threads_without_late(const struct qrn_thread_pool *pool);

/* One turn of a loop that waits for another thread: short at first, then the core is offered to
 * others, then true: it is time to sleep.  Begins as {0}. */
struct qrn_patience {
    unsigned n_turns;
    uint64_t since; /* nanoseconds */
    uint64_t spent; /* of waiting so far, looked at now and then */
};
bool qrn_patience_ends(struct qrn_patience *p);

/* Waits until all n have come; spins for a while, then sleeps.  n may differ between uses when
 * nobody is inside. */
struct qrn_barrier {
    _Atomic int arrived;
    _Atomic unsigned phase;
    _Atomic int sleepers;
    pthread_mutex_t lock;
    pthread_cond_t wake;
};
enum qrn_status qrn_barrier_init(struct qrn_barrier *b, struct qrn_error *err);
void qrn_barrier_destroy(struct qrn_barrier *b);
void qrn_barrier_wait(struct qrn_barrier *b, int n);

#endif
