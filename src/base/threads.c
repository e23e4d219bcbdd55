/* SPDX-License-Identifier: MIT
 * A pool of threads that sleep between runs, and a barrier that spins for a while before it sleeps. */
#include "base/threads.h"

#include <sched.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/error.h"
#include "base/memory.h"

/* How long a thread waits before it offers its core to others, and before it sleeps.  Waking one
 * that sleeps takes some tens of microseconds: as long as it is worth while to spin. */
enum { TURNS_PER_LOOK = 16, YIELD_AFTER_NS = 20000, SLEEP_AFTER_NS = 100000 };

static inline void pause_cpu(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static uint64_t now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

bool qrn_patience_ends(struct qrn_patience *p)
{
    pause_cpu();
    if (++p->n_turns % TURNS_PER_LOOK) return false;
    if (p->since == 0) p->since = now_ns();
    p->spent = now_ns() - p->since;
    if (p->spent > YIELD_AFTER_NS) (void)sched_yield();
    return p->spent > SLEEP_AFTER_NS;
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
    struct qrn_patience patience = {0};
    do {
        if (atomic_load_explicit(&b->phase, memory_order_acquire) != phase) return;
    } while (!qrn_patience_ends(&patience));
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

/* Who is inside a run, in one word, so that coming and closing cannot cross: how many workers, whether
 * more may come, and which run it is. */
#define DOOR_ONE   UINT64_C(1)
#define DOOR_OPEN  (UINT64_C(1) << 15)
#define DOOR_COUNT (DOOR_OPEN - 1)
#define DOOR_RUN   (UINT64_C(1) << 16)

struct pool {
    _Atomic uint64_t door;
    void (*fn)(void *arg, int i); /* these three change while nobody is inside */
    void *arg;
    int n_wanted;
    _Atomic int n_left; /* workers that have been inside */
    _Atomic bool stop;
    _Atomic int n_sleepers;     /* workers */
    _Atomic bool caller_sleeps; /* until workers have left */
    pthread_mutex_t lock;       /* of sleeping */
    pthread_cond_t start, done;
    int n_workers; /* threads of our own that exist */
    struct worker workers[];
};

static bool is_new_run(struct pool *pool, uint64_t seen)
{
    return atomic_load(&pool->door) / DOOR_RUN != seen || atomic_load(&pool->stop);
}

static void wait_for_run(struct pool *pool, uint64_t seen)
{
    struct qrn_patience patience = {0};
    do {
        if (is_new_run(pool, seen)) return;
    } while (!qrn_patience_ends(&patience));
    pthread_mutex_lock(&pool->lock);
    atomic_fetch_add(&pool->n_sleepers, 1);
    while (!is_new_run(pool, seen)) pthread_cond_wait(&pool->start, &pool->lock);
    atomic_fetch_sub(&pool->n_sleepers, 1);
    pthread_mutex_unlock(&pool->lock);
}

/* False: the run is over. */
static bool enter(struct pool *pool, uint64_t *seen)
{
    uint64_t door = atomic_load(&pool->door);
    do {
        *seen = door / DOOR_RUN;
        if (!(door & DOOR_OPEN)) return false;
    } while (!atomic_compare_exchange_weak(&pool->door, &door, door + DOOR_ONE));
    return true;
}

static void leave(struct pool *pool)
{
    atomic_fetch_add(&pool->n_left, 1);
    atomic_fetch_sub(&pool->door, DOOR_ONE);
    if (!atomic_load(&pool->caller_sleeps)) return;
    pthread_mutex_lock(&pool->lock);
    pthread_cond_signal(&pool->done);
    pthread_mutex_unlock(&pool->lock);
}

static void *worker_main(void *p)
{
    struct worker *w = p;
    struct pool *pool = w->pool;
    for (uint64_t seen = 0;;) {
        wait_for_run(pool, seen);
        if (atomic_load(&pool->stop)) return NULL;
        if (!enter(pool, &seen)) continue;
        if (w->index < pool->n_wanted) pool->fn(pool->arg, w->index);
        leave(pool);
    }
}

static void open_door(struct pool *pool)
{
    const uint64_t door = atomic_load(&pool->door);
    atomic_store(&pool->n_left, 0);
    atomic_store(&pool->door, (door / DOOR_RUN + 1) * DOOR_RUN | DOOR_OPEN);
    if (atomic_load(&pool->n_sleepers) == 0) return;
    pthread_mutex_lock(&pool->lock);
    pthread_cond_broadcast(&pool->start);
    pthread_mutex_unlock(&pool->lock);
}

static bool is_empty(struct pool *pool)
{
    return (atomic_load(&pool->door) & DOOR_COUNT) == 0;
}

static bool all_have_left(struct pool *pool)
{
    return atomic_load(&pool->n_left) == pool->n_workers;
}

static void wait_until(struct pool *pool, bool (*is_so)(struct pool *))
{
    struct qrn_patience patience = {0};
    do {
        if (is_so(pool)) return;
    } while (!qrn_patience_ends(&patience));
    pthread_mutex_lock(&pool->lock);
    atomic_store(&pool->caller_sleeps, true);
    while (!is_so(pool)) pthread_cond_wait(&pool->done, &pool->lock);
    atomic_store(&pool->caller_sleeps, false);
    pthread_mutex_unlock(&pool->lock);
}

static void run(struct pool *pool, int n, void (*fn)(void *arg, int i), void *arg, bool all)
{
    if (n <= 1) {
        fn(arg, 0);
        return;
    }
    pool->fn = fn;
    pool->arg = arg;
    pool->n_wanted = n;
    open_door(pool);
    fn(arg, 0);
    if (all) wait_until(pool, all_have_left);
    atomic_fetch_and(&pool->door, ~DOOR_OPEN);
    wait_until(pool, is_empty);
}

static void run_all(void *user, int n, void (*fn)(void *arg, int i), void *arg)
{
    run(user, n, fn, arg, true);
}

static void run_without_late(void *user, int n, void (*fn)(void *arg, int i), void *arg)
{
    run(user, n, fn, arg, false);
}

struct qrn_thread_pool qrn_threads_without_late(const struct qrn_thread_pool *pool)
{
    struct qrn_thread_pool result = *pool;
    result.run = run_without_late;
    return result;
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
    struct qrn_thread_pool result = {.run = run_all, .n_threads = n, .user = pool};
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
    atomic_store(&pool->stop, true);
    pthread_cond_broadcast(&pool->start);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 0; i < pool->n_workers; i++) pthread_join(pool->workers[i].thread, NULL);
    pthread_cond_destroy(&pool->done);
    pthread_cond_destroy(&pool->start);
    pthread_mutex_destroy(&pool->lock);
    qrn_free(allocator, pool, pool_bytes(threads->n_threads));
}
