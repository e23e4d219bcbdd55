/* SPDX-License-Identifier: MIT
 * Running a grid: block after block; in a block each thread runs until it waits for others.  What can
 * never come to an end is found, not waited for. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/float_mode.h"
#include "emulator/block.h"

enum { SHARED_BEGINS = 128 };

struct block emulator_block;

static struct block *const b = &emulator_block;
static unsigned char given[MAX_THREADS][EMULATED_DEPOSIT]; /* by the lanes of a meeting */
static const struct work *running;

struct emulated_dim emulated_thread_index, emulated_block_index, emulated_block_size,
    emulated_grid_size;
unsigned emulated_lane;
void *emulated_dynamic_shared;

static void thread_main(void)
{
    fiber_entered(&b->self->fiber, &b->scheduler);
    running->kernel->invoke(running->params);
    b->self->state = ENDED;
    fiber_switch(&b->self->fiber, &b->scheduler, true);
}

static void resume(struct thread *t)
{
    b->self = t;
    emulated_thread_index = t->index;
    emulated_lane = (unsigned)(t - b->threads) % WARP;
    fiber_switch(&b->scheduler, &t->fiber, false);
}

void emulator_wait(enum state state)
{
    b->self->state = state;
    fiber_switch(&b->self->fiber, &b->scheduler, false);
}

void emulated_sync_block(void)
{
    emulator_wait(AT_BLOCK);
}

const unsigned char *emulated_exchange(unsigned mask, const char *what, const void *data,
                                       size_t n_bytes)
{
    struct thread *t = b->self;
    t->mask = mask;
    t->what = what;
    t->n_bytes = n_bytes;
    if (n_bytes) memcpy(t->deposit, data, n_bytes);
    emulator_wait(AT_WARP);
    return given[(t - b->threads) / WARP * WARP];
}

unsigned emulated_active_lanes(void)
{
    const size_t first = (size_t)(b->self - b->threads) / WARP * WARP;
    unsigned mask = 0;
    for (unsigned i = 0; i < WARP && first + i < b->n_threads; i++)
        if (b->threads[first + i].state != ENDED) mask |= 1u << i;
    return mask;
}

static const char *place_of(const struct thread *t)
{
    switch (t->state) {
    case AT_WARP:
        return t->what;
    case AT_SOME:
        return "at a barrier of some threads";
    case AT_PHASE:
        return "for a barrier's phase";
    default:
        return "at __syncthreads";
    }
}

static bool complain(const struct thread *t, const char *what)
{
    (void)snprintf(emulator_message, sizeof emulator_message,
                   "%s: block (%u, %u, %u), thread %td waits %s: %s", running->kernel->name,
                   emulated_block_index.x, emulated_block_index.y, emulated_block_index.z,
                   t - b->threads, place_of(t), what);
    return false;
}

/* Whether all lanes that t meets are there.  False with emulator_message set: they never will. */
static bool meeting_is_complete(const struct thread *t, size_t first)
{
    for (unsigned i = 0; i < WARP; i++) {
        if (!(t->mask >> i & 1)) continue;
        const struct thread *u = &b->threads[first + i];
        if (first + i >= b->n_threads) return complain(t, "for lanes that the block does not have");
        if (u->state == ENDED) return complain(t, "for a lane that has ended");
        if (u->state != AT_WARP) return false;
        if (u->mask != t->mask || u->what != t->what || u->n_bytes != t->n_bytes)
            return complain(t, "but other lanes of its mask wait for something else");
    }
    return true;
}

/* Lets lanes of a warp, all of which wait or have ended, meet.  Whether any did. */
static bool meet(size_t first)
{
    bool any = false;
    for (size_t i = first; i < first + WARP && i < b->n_threads; i++) {
        struct thread *t = &b->threads[i];
        if (t->state != AT_WARP) continue;
        if (!(t->mask >> (i - first) & 1)) return complain(t, "but is not in its own mask");
        if (!meeting_is_complete(t, first)) {
            if (*emulator_message) return false;
            continue;
        }
        const unsigned mask = t->mask;
        for (unsigned k = 0; k < WARP; k++)
            if (mask >> k & 1) {
                memcpy(given[first + k], b->threads[first + k].deposit, t->n_bytes);
                b->threads[first + k].state = RUNS;
            }
        any = true;
    }
    return any;
}

static void run_warp(size_t first)
{
    const size_t n = b->n_threads - first < WARP ? b->n_threads - first : WARP;
    do {
        for (size_t i = 0; i < n; i++) {
            struct thread *t = &b->threads[first + (emulator_faults.reverse ? n - 1 - i : i)];
            if (t->state == RUNS) resume(t);
        }
    } while (meet(first));
}

bool emulator_is_slow(const struct thread *t)
{
    return (t - b->threads) / WARP == emulator_faults.slow_warp;
}

static bool any_runs(bool slow)
{
    for (unsigned i = 0; i < b->n_threads; i++)
        if (b->threads[i].state == RUNS && emulator_is_slow(&b->threads[i]) == slow) return true;
    return false;
}

/* Phases that have ended by now, with all that was under way. */
static bool release_phases(bool slow)
{
    bool any = false;
    for (unsigned i = 0; i < b->n_threads; i++) {
        struct thread *t = &b->threads[i];
        if (t->state != AT_PHASE || emulator_is_slow(t) != slow) continue;
        if (!emulator_phase_ended(t->barrier, t->parity)) continue;
        t->state = RUNS;
        any = true;
    }
    return any;
}

/* The block's barrier, when nothing else goes on.  False: it never will. */
static bool release_block(void)
{
    const struct thread *waits = NULL, *ended = NULL, *stuck = NULL;
    for (unsigned i = 0; i < b->n_threads; i++) {
        const struct thread *t = &b->threads[i];
        if (t->state == AT_BLOCK)
            waits = t;
        else if (t->state == ENDED)
            ended = t;
        else
            stuck = t;
    }
    if (stuck) return complain(stuck, "and nothing goes on");
    if (waits && ended) return complain(waits, "but other threads have ended");
    for (unsigned i = 0; i < b->n_threads; i++) b->threads[i].state = RUNS;
    return true;
}

static bool all_ended(void)
{
    for (unsigned i = 0; i < b->n_threads; i++)
        if (b->threads[i].state != ENDED) return false;
    return true;
}

/* Lets go on what can: the slow warp when nobody else does.  Whether any did. */
static bool run_warps(bool slow)
{
    const size_t n_warps = (b->n_threads + WARP - 1) / WARP;
    if (!any_runs(slow) && !release_phases(slow)) return false;
    for (size_t i = 0; i < n_warps && !*emulator_message; i++) {
        const size_t first = (emulator_faults.reverse ? n_warps - 1 - i : i) * WARP;
        if (emulator_is_slow(&b->threads[first]) == slow) run_warp(first);
    }
    return true;
}

static bool run_block(const struct work *w)
{
    if (w->shared_bytes) memset(emulated_dynamic_shared, 0xff, w->shared_bytes);
    b->number++;
    memset(b->n_arrived, 0, sizeof b->n_arrived);
    emulator_async_begin();
    for (unsigned i = 0; i < b->n_threads; i++) {
        struct thread *t = &b->threads[i];
        t->state = RUNS;
        t->n_copies = 0;
        t->group = 0;
        t->index = (struct emulated_dim){i % w->block.x, i / w->block.x % w->block.y,
                                         i / w->block.x / w->block.y};
        fiber_begin(&t->fiber, i, thread_main);
    }
    while (!all_ended()) {
        if (!run_warps(false) && !run_warps(true) && !release_block()) return false;
        if (*emulator_message) return false;
    }
    return true;
}

bool emulator_run_grid(const struct work *w)
{
    bool good = true;
    running = w;
    b->n_threads = w->block.x * w->block.y * w->block.z;
    emulator_message[0] = 0;
    emulated_block_size = w->block;
    emulated_grid_size = w->grid;
    /* Not at a multiple of 1024, which no kernel may count on. */
    b->shared = aligned_alloc(1024, (w->shared_bytes + SHARED_BEGINS + 1023) / 1024 * 1024);
    if (!fibers_reserve(MAX_THREADS) || !b->shared) abort();
    emulated_dynamic_shared = b->shared + SHARED_BEGINS;
    const uint64_t mode = qrn_float_mode_enter(); /* subnormal floats are flushed, as built */
    for (unsigned z = 0; z < w->grid.z && good; z++)
        for (unsigned y = 0; y < w->grid.y && good; y++)
            for (unsigned x = 0; x < w->grid.x && good; x++) {
                emulated_block_index = (struct emulated_dim){x, y, z};
                good = run_block(w);
            }
    qrn_float_mode_leave(mode);
    free(b->shared);
    return good;
}
