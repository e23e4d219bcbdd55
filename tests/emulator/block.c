/* SPDX-License-Identifier: MIT
 * Running a grid: block after block; in a block each thread runs until it waits for others.  What can
 * never come to an end is found, not waited for. */
#include "emulator/emulator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/float_mode.h"
#include "emulator/fiber.h"

enum state { RUNS, AT_BLOCK, AT_WARP, ENDED };

/* Copies under way; group counts the thread's commits. */
struct copy {
    void *to;
    const void *from;
    int n_bytes;
    unsigned group;
};
enum { MAX_COPIES = 256 };

struct thread {
    struct fiber fiber;
    struct copy copies[MAX_COPIES];
    int n_copies;
    unsigned group;
    enum state state;
    struct emulated_dim index;
    unsigned mask; /* AT_WARP: who meets */
    const char *what;
    size_t n_bytes;
    unsigned char deposit[EMULATED_DEPOSIT];
};

enum { MAX_THREADS = 1024, WARP = 32 };

static struct thread threads[MAX_THREADS];
static unsigned char given[MAX_THREADS][EMULATED_DEPOSIT]; /* by the lanes of a meeting */
static struct fiber scheduler;
static struct thread *self;
static unsigned n_threads;
static const struct work *running;

struct emulated_dim emulated_thread_index, emulated_block_index, emulated_block_size,
    emulated_grid_size;
unsigned emulated_lane;
void *emulated_dynamic_shared;

static void thread_main(void)
{
    fiber_entered(&self->fiber, &scheduler);
    running->kernel->invoke(running->params);
    self->state = ENDED;
    fiber_switch(&self->fiber, &scheduler, true);
}

static void resume(struct thread *t)
{
    self = t;
    emulated_thread_index = t->index;
    emulated_lane = (unsigned)(t - threads) % WARP;
    fiber_switch(&scheduler, &t->fiber, false);
}

void emulated_sync_block(void)
{
    self->state = AT_BLOCK;
    fiber_switch(&self->fiber, &scheduler, false);
}

const unsigned char *emulated_exchange(unsigned mask, const char *what, const void *data,
                                       size_t n_bytes)
{
    struct thread *t = self;
    t->state = AT_WARP;
    t->mask = mask;
    t->what = what;
    t->n_bytes = n_bytes;
    if (n_bytes) memcpy(t->deposit, data, n_bytes);
    fiber_switch(&t->fiber, &scheduler, false);
    return given[(t - threads) / WARP * WARP];
}

unsigned emulated_active_lanes(void)
{
    const size_t first = (size_t)(self - threads) / WARP * WARP;
    unsigned mask = 0;
    for (unsigned i = 0; i < WARP && first + i < n_threads; i++)
        if (threads[first + i].state != ENDED) mask |= 1u << i;
    return mask;
}

void emulated_copy_begin(void *to, const void *from, int n_bytes)
{
    struct thread *t = self;
    if (t->n_copies == MAX_COPIES) abort();
    memset(to, 0xff, 16);
    t->copies[t->n_copies++] = (struct copy){to, from, n_bytes, t->group};
}

void emulated_copies_commit(void)
{
    self->group++;
}

void emulated_copies_wait(int n_groups_left)
{
    struct thread *t = self;
    int n = 0;
    for (int i = 0; i < t->n_copies; i++) {
        const struct copy *c = &t->copies[i];
        if (t->group - c->group <= (unsigned)n_groups_left) {
            t->copies[n++] = *c;
            continue;
        }
        memset(c->to, 0, 16);
        memcpy(c->to, c->from, (size_t)c->n_bytes);
    }
    t->n_copies = n;
}

static bool complain(const struct thread *t, const char *what)
{
    (void)snprintf(emulator_message, sizeof emulator_message,
                   "%s: block (%u, %u, %u), thread %td waits %s: %s", running->kernel->name,
                   emulated_block_index.x, emulated_block_index.y, emulated_block_index.z,
                   t - threads, t->state == AT_WARP ? t->what : "at __syncthreads", what);
    return false;
}

/* Whether all lanes that t meets are there.  False with emulator_message set: they never will. */
static bool meeting_is_complete(const struct thread *t, size_t first)
{
    for (unsigned i = 0; i < WARP; i++) {
        if (!(t->mask >> i & 1)) continue;
        const struct thread *u = &threads[first + i];
        if (first + i >= n_threads) return complain(t, "for lanes that the block does not have");
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
    for (size_t i = first; i < first + WARP && i < n_threads; i++) {
        struct thread *t = &threads[i];
        if (t->state != AT_WARP) continue;
        if (!(t->mask >> (i - first) & 1)) return complain(t, "but is not in its own mask");
        if (!meeting_is_complete(t, first)) {
            if (*emulator_message) return false;
            continue;
        }
        const unsigned mask = t->mask;
        for (unsigned k = 0; k < WARP; k++)
            if (mask >> k & 1) {
                memcpy(given[first + k], threads[first + k].deposit, t->n_bytes);
                threads[first + k].state = RUNS;
            }
        any = true;
    }
    return any;
}

static void run_warp(size_t first)
{
    const size_t n = n_threads - first < WARP ? n_threads - first : WARP;
    do {
        for (size_t i = 0; i < n; i++) {
            struct thread *t = &threads[first + (emulator_faults.reverse ? n - 1 - i : i)];
            if (t->state == RUNS) resume(t);
        }
    } while (meet(first));
}

/* After each thread has run as far as it can: the block's barrier.  False: nothing can go on. */
static bool release_block(void)
{
    const struct thread *waits = NULL, *ended = NULL, *at_warp = NULL;
    for (unsigned i = 0; i < n_threads; i++) {
        if (threads[i].state == AT_WARP) at_warp = &threads[i];
        if (threads[i].state == AT_BLOCK) waits = &threads[i];
        if (threads[i].state == ENDED) ended = &threads[i];
    }
    if (at_warp) return complain(at_warp, "and nothing goes on");
    if (waits && ended) return complain(waits, "but other threads have ended");
    for (unsigned i = 0; i < n_threads; i++)
        if (threads[i].state == AT_BLOCK) threads[i].state = RUNS;
    return true;
}

static bool all_ended(void)
{
    for (unsigned i = 0; i < n_threads; i++)
        if (threads[i].state != ENDED) return false;
    return true;
}

static bool run_block(const struct work *w)
{
    const size_t n_warps = (n_threads + WARP - 1) / WARP;
    if (w->shared_bytes) memset(emulated_dynamic_shared, 0xff, w->shared_bytes);
    for (unsigned i = 0; i < n_threads; i++) {
        struct thread *t = &threads[i];
        t->state = RUNS;
        t->n_copies = 0;
        t->group = 0;
        t->index = (struct emulated_dim){i % w->block.x, i / w->block.x % w->block.y,
                                         i / w->block.x / w->block.y};
        fiber_begin(&t->fiber, i, thread_main);
    }
    while (!all_ended()) {
        for (size_t i = 0; i < n_warps && !*emulator_message; i++)
            run_warp((emulator_faults.reverse ? n_warps - 1 - i : i) * WARP);
        if (*emulator_message || (!all_ended() && !release_block())) return false;
    }
    return true;
}

bool emulator_run_grid(const struct work *w)
{
    bool good = true;
    running = w;
    n_threads = w->block.x * w->block.y * w->block.z;
    emulator_message[0] = 0;
    emulated_block_size = w->block;
    emulated_grid_size = w->grid;
    emulated_dynamic_shared =
        w->shared_bytes ? aligned_alloc(128, (w->shared_bytes + 127) / 128 * 128) : NULL;
    if (!fibers_reserve(MAX_THREADS) || (w->shared_bytes && !emulated_dynamic_shared)) abort();
    const uint64_t mode = qrn_float_mode_enter(); /* subnormal floats are flushed, as built */
    for (unsigned z = 0; z < w->grid.z && good; z++)
        for (unsigned y = 0; y < w->grid.y && good; y++)
            for (unsigned x = 0; x < w->grid.x && good; x++) {
                emulated_block_index = (struct emulated_dim){x, y, z};
                good = run_block(w);
            }
    qrn_float_mode_leave(mode);
    free(emulated_dynamic_shared);
    return good;
}
