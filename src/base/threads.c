/* SPDX-License-Identifier: MIT
 * A pool of threads that sleep between runs, and a barrier that spins for a while before it sleeps. */
#include "base/threads.h"

#include <sched.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>
#include "base/error.h"
#include "base/memory.h"

enum { N_SPINS = 4000 }; /* some microseconds: longer than most ops of a decode step wait */

static inline void pause_cpu(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

int qrn_n_cores(void)
{
#if defined(__linux__)
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) {
        const int n = CPU_COUNT(&set);
        if (n > 0) return n;
    }
#endif
    const long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}

enum qrn_status qrn_barrier_init(struct qrn_barrier *b, struct qrn_error *err)
{
    atomic_init(&b->arrived, 0);
    atomic_init(&b->phase, 0);
    atomic_init(&b->sleepers, 0);
    if (pthread_mutex_init(&b->lock, NULL) != 0)
        return qrn_fail(err, QRN_ERR_DEVICE, "cannot make a mutex");
    if (pthread_cond_init(&b->wake, NULL) != 0) {
        pthread_mutex_destroy(&b->lock);
        return qrn_fail(err, QRN_ERR_DEVICE, "cannot make a condition variable");
    }
    return QRN_OK;
}

void qrn_barrier_destroy(struct qrn_barrier *b)
{
    pthread_cond_destroy(&b->wake);
    pthread_mutex_destroy(&b->lock);
}

void qrn_barrier_wait(struct qrn_barrier *b, int n)
{
    if (n <= 1) return;
    const unsigned phase = atomic_load(&b->phase);
    if (atomic_fetch_add(&b->arrived, 1) == n - 1) {
        atomic_store(&b->arrived, 0);
        atomic_fetch_add(&b->phase, 1);
        if (atomic_load(&b->sleepers) > 0) {
            pthread_mutex_lock(&b->lock);
            pthread_cond_broadcast(&b->wake);
            pthread_mutex_unlock(&b->lock);
        }
        return;
    }
    for (int i = 0; i < N_SPINS; i++) {
        if (atomic_load_explicit(&b->phase, memory_order_acquire) != phase) return;
        pause_cpu();
    }
    pthread_mutex_lock(&b->lock);
    atomic_fetch_add(&b->sleepers, 1);
    while (atomic_load(&b->phase) == phase) pthread_cond_wait(&b->wake, &b->lock);
    atomic_fetch_sub(&b->sleepers, 1);
    pthread_mutex_unlock(&b->lock);
}

struct worker {
    struct pool *pool;
    pthread_t thread;
    int index;
};

struct pool {
    pthread_mutex_t lock;
    pthread_cond_t start, done;
    void (*fn)(void *arg, int i);
    void *arg;
    int n_wanted, n_running;
    unsigned long generation;
    bool stop;
    int n_workers; /* threads of our own that exist */
    struct worker workers[];
};

static void *worker_main(void *p)
{
    struct worker *w = p;
    struct pool *pool = w->pool;
    unsigned long seen = 0;
    pthread_mutex_lock(&pool->lock);
    for (;;) {
        while (!pool->stop && pool->generation == seen) pthread_cond_wait(&pool->start, &pool->lock);
        if (pool->stop) break;
        seen = pool->generation;
        if (w->index >= pool->n_wanted) continue;
        pthread_mutex_unlock(&pool->lock);
        pool->fn(pool->arg, w->index);
        pthread_mutex_lock(&pool->lock);
        if (--pool->n_running == 0) pthread_cond_signal(&pool->done);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

static void pool_run(void *user, int n, void (*fn)(void *arg, int i), void *arg)
{
    struct pool *pool = user;
    if (n > 1) {
        pthread_mutex_lock(&pool->lock);
        pool->fn = fn;
        pool->arg = arg;
        pool->n_wanted = n;
        pool->n_running = n - 1;
        pool->generation++;
        pthread_cond_broadcast(&pool->start);
        pthread_mutex_unlock(&pool->lock);
    }
    fn(arg, 0);
    if (n > 1) {
        pthread_mutex_lock(&pool->lock);
        while (pool->n_running > 0) pthread_cond_wait(&pool->done, &pool->lock);
        pthread_mutex_unlock(&pool->lock);
    }
}

static size_t pool_bytes(int n)
{
    return sizeof(struct pool) + (size_t)n * sizeof(struct worker);
}

enum qrn_status qrn_threads_create(int n, const struct qrn_allocator *allocator,
                                   struct qrn_thread_pool *out, struct qrn_error *err)
{
    struct pool *pool = qrn_alloc_zeroed(allocator, pool_bytes(n));
    if (!pool) return qrn_fail_memory(err, pool_bytes(n), "threads");
    struct qrn_thread_pool result = {.run = pool_run, .n_threads = n, .user = pool};
    if (pthread_mutex_init(&pool->lock, NULL) != 0) {
        qrn_free(allocator, pool, pool_bytes(n));
        return qrn_fail(err, QRN_ERR_DEVICE, "cannot make a mutex");
    }
    if (pthread_cond_init(&pool->start, NULL) != 0 || pthread_cond_init(&pool->done, NULL) != 0) {
        pthread_mutex_destroy(&pool->lock);
        qrn_free(allocator, pool, pool_bytes(n));
        return qrn_fail(err, QRN_ERR_DEVICE, "cannot make a condition variable");
    }
    for (int i = 1; i < n; i++) {
        struct worker *w = &pool->workers[i - 1];
        *w = (struct worker){.pool = pool, .index = i};
        if (pthread_create(&w->thread, NULL, worker_main, w) != 0) {
            qrn_threads_destroy(&result, allocator);
            return qrn_fail(err, QRN_ERR_DEVICE, "cannot start thread %d of %d", i + 1, n);
        }
        pool->n_workers++;
    }
    *out = result;
    return QRN_OK;
}

void qrn_threads_destroy(struct qrn_thread_pool *threads, const struct qrn_allocator *allocator)
{
    struct pool *pool = threads->user;
    pthread_mutex_lock(&pool->lock);
    pool->stop = true;
    pthread_cond_broadcast(&pool->start);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 0; i < pool->n_workers; i++) pthread_join(pool->workers[i].thread, NULL);
    pthread_cond_destroy(&pool->done);
    pthread_cond_destroy(&pool->start);
    pthread_mutex_destroy(&pool->lock);
    qrn_free(allocator, pool, pool_bytes(threads->n_threads));
}
