/* SPDX-License-Identifier: MIT
 * A lane is a share of the work, and a place in the list of steps.  Each thread takes its own lane
 * from step to step and looks at the places of the others only where a step says so.  A thread that
 * waits too long takes the lanes behind it further: one whose thread has no core holds up nobody,
 * unless it lost it inside a kernel.
 *
 * Only lanes behind the own one are taken over.  So kernels whose lanes wait for each other inside are
 * safe: when the own lane is past such a step, each lane has met it on a thread of its own. */
#include "backends/cpu/lanes.h"

#include "backends/cpu/joints.h"
#include "base/float_mode.h"
#include "base/memory.h"

/* Steps of a token take some microseconds: later than that a thread has lost its core. */
enum { LATE_NS = 20000 };

struct place {
    _Alignas(64) _Atomic size_t at; /* twice the steps behind it; odd: a thread runs the next */
    _Atomic bool late;              /* its thread does not come; others need not wait for it */
};

struct qrn_cpu_lanes {
    struct qrn_barrier barrier; /* of kernels */
    pthread_mutex_t lock;       /* of sleeping */
    pthread_cond_t moved;
    _Atomic int n_sleepers;
    int n_reserved;
    uint64_t features;

    /* of the run; written while one thread is inside */
    int n;
    const struct qrn_step *steps;
    size_t n_steps;
    bool near;
    void *scratch;
    _Atomic int64_t *taken; /* of each step */
    struct qrn_error *err;
    enum qrn_status status; /* of a check; written by lane 0, but all lanes find the same */
    struct place places[];
};

static size_t bytes_of(int n_lanes)
{
    return sizeof(struct qrn_cpu_lanes) + (size_t)n_lanes * sizeof(struct place);
}

enum qrn_status qrn_cpu_lanes_create(int n_lanes, uint64_t features, const struct qrn_allocator *a,
                                     struct qrn_cpu_lanes **out, struct qrn_error *err)
{
    struct qrn_cpu_lanes *lanes = qrn_alloc_zeroed(a, bytes_of(n_lanes));
    if (!lanes) return qrn_fail_memory(err, bytes_of(n_lanes), "lanes");
    lanes->n_reserved = n_lanes;
    lanes->features = features;
    enum qrn_status status = qrn_barrier_init(&lanes->barrier, err);
    if (status != QRN_OK) goto no_barrier;
    status = qrn_fail(err, QRN_ERR_DEVICE, "cannot make a mutex");
    if (pthread_mutex_init(&lanes->lock, NULL) != 0) goto no_lock;
    if (pthread_cond_init(&lanes->moved, NULL) != 0) goto no_cond;
    *out = lanes;
    return QRN_OK;
no_cond:
    pthread_mutex_destroy(&lanes->lock);
no_lock:
    qrn_barrier_destroy(&lanes->barrier);
no_barrier:
    qrn_free(a, lanes, bytes_of(n_lanes));
    return status;
}

void qrn_cpu_lanes_destroy(struct qrn_cpu_lanes *lanes, const struct qrn_allocator *a)
{
    pthread_cond_destroy(&lanes->moved);
    pthread_mutex_destroy(&lanes->lock);
    qrn_barrier_destroy(&lanes->barrier);
    qrn_free(a, lanes, bytes_of(lanes->n_reserved));
}

/* Whether lane i may run step s. */
static bool ready(const struct qrn_cpu_lanes *l, int i, size_t s)
{
    const size_t back = l->steps[s].back;
    if (back == 0 || back > s) return true;
    const size_t behind = 2 * (s - back + 1);
    for (int k = 0; k < l->n; k++)
        if (k != i && atomic_load(&l->places[k].at) < behind) return false;
    return true;
}

static bool has_part(const struct qrn_cpu_lanes *l, int i, size_t s)
{
    const int lane = l->steps[s].lane;
    return lane == QRN_ALL_LANES || lane % l->n == i;
}

static void wake_sleepers(struct qrn_cpu_lanes *l)
{
    if (atomic_load(&l->n_sleepers) == 0) return;
    pthread_mutex_lock(&l->lock);
    pthread_cond_broadcast(&l->moved);
    pthread_mutex_unlock(&l->lock);
}

/* Numbers that an earlier step may have written are looked at by each lane: all find the same. */
static bool data_is_good(struct qrn_cpu_lanes *l, int i, const struct qrn_step *step)
{
    if (!step->check_late) return true;
    const enum qrn_status s = step->op->check_data(step->args, i == 0 ? l->err : NULL);
    if (i == 0) l->status = s;
    return s == QRN_OK;
}

/* The part of lane i in step s; where the lane stands then. */
static size_t run_step(struct qrn_cpu_lanes *l, int i, size_t s)
{
    const struct qrn_step *step = &l->steps[s];
    const bool alone = step->lane != QRN_ALL_LANES;
    struct qrn_cpu_lane lane = {.i = alone ? 0 : i,
                                .n = alone ? 1 : l->n,
                                .scratch = (char *)l->scratch + step->scratch_at,
                                .barrier = &l->barrier,
                                .taken = &l->taken[s],
                                .features = l->features,
                                .near = l->near};
    if (!data_is_good(l, i, step)) return l->n_steps;
    const struct qrn_cpu_joint *joint = qrn_cpu_joint_of(step, l->n_steps - s, l->n);
    if (joint) {
        joint->run(&lane, step->args, step[1].args);
        return s + 2;
    }
    step->kernel->run(&lane, step->args);
    return s + 1;
}

/* Where lane i could go on from, if it could now: *at is its place. */
static bool can_move(struct qrn_cpu_lanes *l, int i, size_t *at)
{
    *at = atomic_load(&l->places[i].at);
    if (*at % 2 || *at / 2 == l->n_steps) return false;
    return !has_part(l, i, *at / 2) || ready(l, i, *at / 2);
}

/* Takes lane i a step further; false: it cannot go. */
static bool move(struct qrn_cpu_lanes *l, int i)
{
    size_t at;
    if (!can_move(l, i, &at)) return false;
    size_t s = at / 2;
    if (!atomic_compare_exchange_strong(&l->places[i].at, &at, at + 1)) return true;
    while (s < l->n_steps && !has_part(l, i, s)) s++;
    if (s == at / 2) s = run_step(l, i, s);
    atomic_store(&l->places[i].at, 2 * s);
    wake_sleepers(l);
    return true;
}

/* Takes a lane further that stands before place and whose thread is late. */
static bool take_over(struct qrn_cpu_lanes *l, size_t place, bool all_late)
{
    for (int i = 0; i < l->n; i++) {
        struct place *p = &l->places[i];
        size_t at;
        if (!all_late && !atomic_load_explicit(&p->late, memory_order_relaxed)) continue;
        if (atomic_load(&p->at) >= place || !can_move(l, i, &at) || at >= place) continue;
        atomic_store_explicit(&p->late, true, memory_order_relaxed);
        return move(l, i);
    }
    return false;
}

static bool all_done(struct qrn_cpu_lanes *l)
{
    for (int i = 0; i < l->n; i++)
        if (atomic_load(&l->places[i].at) < 2 * l->n_steps) return false;
    return true;
}

/* Whether the thread of lane i has something to do. */
static bool has_work(struct qrn_cpu_lanes *l, int i)
{
    size_t at;
    const size_t own = atomic_load(&l->places[i].at);
    if (can_move(l, i, &at) || all_done(l)) return true;
    for (int k = 0; k < l->n; k++)
        if (atomic_load(&l->places[k].at) < own && can_move(l, k, &at) && at < own) return true;
    return false;
}

static void sleep_until_work(struct qrn_cpu_lanes *l, int i)
{
    pthread_mutex_lock(&l->lock);
    atomic_fetch_add(&l->n_sleepers, 1);
    while (!has_work(l, i)) pthread_cond_wait(&l->moved, &l->lock);
    atomic_fetch_sub(&l->n_sleepers, 1);
    pthread_mutex_unlock(&l->lock);
}

static void lane_main(void *arg, int i)
{
    struct qrn_cpu_lanes *l = arg;
    struct place *own = &l->places[i];
    struct qrn_patience patience = {0};
    const uint64_t mode = qrn_float_mode_enter();
    atomic_store_explicit(&own->late, false, memory_order_relaxed);
    for (;;) {
        const size_t at = atomic_load(&own->at);
        if (at == 2 * l->n_steps && (i > 0 || all_done(l))) break;
        const bool moved = move(l, i);
        if (moved || take_over(l, at, patience.spent > LATE_NS)) {
            if (moved && atomic_load_explicit(&own->late, memory_order_relaxed))
                atomic_store_explicit(&own->late, false, memory_order_relaxed);
            patience = (struct qrn_patience){0};
        } else if (qrn_patience_ends(&patience)) {
            sleep_until_work(l, i);
        }
    }
    qrn_float_mode_leave(mode);
}

enum qrn_status qrn_cpu_lanes_run(struct qrn_cpu_lanes *l, const struct qrn_thread_pool *threads,
                                  int n_lanes, const struct qrn_step *steps, size_t n_steps,
                                  bool near, void *scratch, _Atomic int64_t *taken,
                                  struct qrn_error *err)
{
    l->n = n_lanes;
    l->steps = steps;
    l->n_steps = n_steps;
    l->near = near;
    l->scratch = scratch;
    l->taken = taken;
    l->err = err;
    l->status = QRN_OK;
    for (size_t s = 0; s < n_steps; s++) atomic_init(&taken[s], 0);
    for (int i = 0; i < l->n; i++) atomic_store(&l->places[i].at, 0);
    if (l->n == 1)
        lane_main(l, 0);
    else
        threads->run(threads->user, l->n, lane_main, l);
    return l->status;
}
