/* SPDX-License-Identifier: MIT
 * Running a grid: block after block, or blocks together (together.c); in a block each thread runs until it waits
 * for others.  What can never come to an end is found, not waited for. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/float_mode.h"
#include "emulator/block.h"

enum { MAX_IDLE = 10000 };

struct block *emulator_block;

static const struct work *running;

struct emulated_dim emulated_thread_index, emulated_block_index, emulated_block_size,
    emulated_grid_size;
unsigned emulated_lane;
void *emulated_dynamic_shared;

static void thread_main(void)
{
    struct block *b = emulator_block;
    fiber_entered(&b->self->fiber, &b->scheduler);
    running->kernel->invoke(running->params);
    emulator_thread_ends();
    b->self->state = ENDED;
    fiber_switch(&b->self->fiber, &b->scheduler, true);
}

static void resume(struct block *b, struct thread *t)
{
    b->self = t;
    t->ran = true;
    emulated_thread_index = t->index;
    emulated_lane = (unsigned)(t - b->threads) % WARP;
    fiber_switch(&b->scheduler, &t->fiber, false);
}

void emulator_wait(enum state state)
{
    struct block *b = emulator_block;
    b->self->state = state;
    fiber_switch(&b->self->fiber, &b->scheduler, false);
}

void emulated_sync_block(void)
{
    emulator_wait(AT_BLOCK);
}

void emulated_yield(void)
{
    emulator_wait(YIELDS);
}

const unsigned char *emulated_exchange(unsigned mask, const char *what, const void *data,
                                       size_t n_bytes)
{
    struct block *b = emulator_block;
    struct thread *t = b->self;
    t->mask = mask;
    t->what = what;
    t->n_bytes = n_bytes;
    if (n_bytes) memcpy(t->deposit, data, n_bytes);
    emulator_wait(AT_WARP);
    return b->given[(t - b->threads) / WARP * WARP];
}

unsigned emulated_active_lanes(void)
{
    const struct block *b = emulator_block;
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
    case AT_CLUSTER:
        return "for its cluster";
    case YIELDS:
        return "for what others write";
    default:
        return "at __syncthreads";
    }
}

static bool complain(const struct block *b, const struct thread *t, const char *what)
{
    (void)snprintf(emulator_message, sizeof emulator_message,
                   "%s: block (%u, %u, %u), thread %td waits %s: %s", running->kernel->name,
                   b->index.x, b->index.y, b->index.z, t - b->threads, place_of(t), what);
    return false;
}

/* Whether all lanes that t meets are there.  False with emulator_message set: they never will. */
static bool meeting_is_complete(const struct block *b, const struct thread *t, size_t first)
{
    for (unsigned i = 0; i < WARP; i++) {
        if (!(t->mask >> i & 1)) continue;
        const struct thread *u = &b->threads[first + i];
        if (first + i >= b->n_threads)
            return complain(b, t, "for lanes that the block does not have");
        if (u->state == ENDED) return complain(b, t, "for a lane that has ended");
        if (u->state != AT_WARP) return false;
        if (u->mask != t->mask || u->what != t->what || u->n_bytes != t->n_bytes)
            return complain(b, t, "but other lanes of its mask wait for something else");
    }
    return true;
}

/* Lets lanes of a warp, all of which wait or have ended, meet.  Whether any did. */
static bool meet(struct block *b, size_t first)
{
    bool any = false;
    for (size_t i = first; i < first + WARP && i < b->n_threads; i++) {
        struct thread *t = &b->threads[i];
        if (t->state != AT_WARP) continue;
        if (!(t->mask >> (i - first) & 1)) return complain(b, t, "but is not in its own mask");
        if (!meeting_is_complete(b, t, first)) {
            if (*emulator_message) return false;
            continue;
        }
        const unsigned mask = t->mask;
        for (unsigned k = 0; k < WARP; k++)
            if (mask >> k & 1) {
                memcpy(b->given[first + k], b->threads[first + k].deposit, t->n_bytes);
                b->threads[first + k].state = RUNS;
            }
        any = true;
    }
    return any;
}

static void run_warp(struct block *b, size_t first)
{
    const size_t n = b->n_threads - first < WARP ? b->n_threads - first : WARP;
    do {
        for (size_t i = 0; i < n; i++) {
            struct thread *t = &b->threads[first + (emulator_faults.reverse ? n - 1 - i : i)];
            if (t->state == RUNS) resume(b, t);
        }
    } while (meet(b, first));
}

bool emulator_is_slow(const struct block *b, const struct thread *t)
{
    return (t - b->threads) / WARP == emulator_faults.slow_warp;
}

static bool any_runs(const struct block *b, bool slow)
{
    for (unsigned i = 0; i < b->n_threads; i++)
        if (b->threads[i].state == RUNS && emulator_is_slow(b, &b->threads[i]) == slow) return true;
    return false;
}

/* Phases that have ended by now, with all that was under way. */
static bool release_phases(struct block *b, bool slow)
{
    bool any = false;
    for (unsigned i = 0; i < b->n_threads; i++) {
        struct thread *t = &b->threads[i];
        if (emulator_is_slow(b, t) != slow) continue;
        if (t->state != AT_PHASE && t->state != AT_CLUSTER) continue;
        if (t->state == AT_PHASE ? !emulator_phase_ended(t->barrier, t->parity)
                                 : !emulator_cluster_came(b, t))
            continue;
        t->state = RUNS;
        any = true;
    }
    return any;
}

/* The block's barrier, when nothing else goes on.  False: it never will. */
static bool release_block(struct block *b)
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
    if (stuck) return complain(b, stuck, "and nothing goes on");
    if (waits && ended) return complain(b, waits, "but other threads have ended");
    for (unsigned i = 0; i < b->n_threads; i++) b->threads[i].state = RUNS;
    return true;
}

static bool all_ended(const struct block *b)
{
    for (unsigned i = 0; i < b->n_threads; i++)
        if (b->threads[i].state != ENDED) return false;
    return true;
}

/* Lets go on what can: the slow warp when nobody else does.  Whether any did. */
static bool run_warps(struct block *b, bool slow)
{
    const size_t n_warps = (b->n_threads + WARP - 1) / WARP;
    if (!any_runs(b, slow) && !release_phases(b, slow)) return false;
    for (size_t i = 0; i < n_warps && !*emulator_message; i++) {
        const size_t first = (emulator_faults.reverse ? n_warps - 1 - i : i) * WARP;
        if (emulator_is_slow(b, &b->threads[first]) == slow) run_warp(b, first);
    }
    return true;
}

/* Whether other blocks may let the thread go on: at once, or when they have written. */
static bool waits_for_blocks(const struct block *b, const struct thread *t)
{
    return t->state == YIELDS || t->state == AT_CLUSTER || (t->state == AT_PHASE && b->cluster);
}

static bool any_waits_for_blocks(const struct block *b)
{
    for (unsigned i = 0; i < b->n_threads; i++)
        if (waits_for_blocks(b, &b->threads[i])) return true;
    return false;
}

/* Only threads that wait for other blocks can go on: in the block's next turn, those that yielded anyway. */
static enum turn end_turn(struct block *b)
{
    enum turn turn = TURN_IDLE;
    for (unsigned i = 0; i < b->n_threads; i++) {
        struct thread *t = &b->threads[i];
        const bool waits = waits_for_blocks(b, t);
        if (waits != t->yielded || (t->ran && waits && t->state != YIELDS)) turn = TURN_WENT_ON;
        if (t->state == YIELDS) t->state = RUNS;
        t->yielded = waits;
        t->ran = false;
    }
    return turn;
}

enum turn emulator_take_turn(struct block *b)
{
    emulator_block = b;
    emulated_block_index = b->index;
    emulated_dynamic_shared = b->shared + SHARED_BEGINS;
    while (!all_ended(b)) {
        if (run_warps(b, false) || run_warps(b, true)) {
            if (*emulator_message) return TURN_FAILED;
        } else if (any_waits_for_blocks(b)) {
            return end_turn(b);
        } else if (!release_block(b)) {
            return TURN_FAILED;
        }
    }
    return emulator_async_end(b) ? TURN_ENDED : TURN_FAILED;
}

enum turn emulator_take_turns(enum turn (*turn)(void *), void *of)
{
    enum turn last = TURN_WENT_ON;
    for (int n_idle = 0; last >= TURN_IDLE && n_idle < MAX_IDLE;) {
        last = turn(of);
        n_idle = last == TURN_IDLE ? n_idle + 1 : 0;
    }
    return last;
}

void emulator_complain_of_yields(struct block *b)
{
    struct thread *t = b->threads;
    while (!t->yielded) t++;
    if (t->state == RUNS) t->state = YIELDS;
    (void)complain(b, t, "and nothing goes on");
}

bool emulator_reserve(struct block *b, const struct work *w, size_t n_threads)
{
    /* Not at a multiple of 1024, which no kernel may count on. */
    b->shared = aligned_alloc(1024, (w->shared_bytes + SHARED_BEGINS + 1023) / 1024 * 1024);
    return b->shared && fibers_reserve(&b->stacks, n_threads);
}

void emulator_release(struct block *b)
{
    free(b->shared);
    fibers_free(&b->stacks);
}

void emulator_begin_block(struct block *b, const struct work *w, size_t i)
{
    static uint64_t n_blocks;
    b->n_threads = w->block.x * w->block.y * w->block.z;
    b->index =
        (struct emulated_dim){(unsigned)(i % w->grid.x), (unsigned)(i / w->grid.x % w->grid.y),
                              (unsigned)(i / w->grid.x / w->grid.y)};
    b->shared_bytes = w->shared_bytes;
    if (w->shared_bytes) memset(b->shared + SHARED_BEGINS, 0xff, w->shared_bytes);
    b->number = ++n_blocks;
    b->cluster = NULL;
    memset(b->n_arrived, 0, sizeof b->n_arrived);
    emulator_async_begin(b);
    for (unsigned k = 0; k < b->n_threads; k++) {
        struct thread *t = &b->threads[k];
        t->state = RUNS;
        t->yielded = t->ran = false;
        t->n_arrivals = t->n_waits = 0;
        t->n_copies = 0;
        t->group = 0;
        t->index = (struct emulated_dim){k % w->block.x, k / w->block.x % w->block.y,
                                         k / w->block.x / w->block.y};
        fiber_begin(&t->fiber, &b->stacks, k, thread_main);
    }
}

static enum turn turn_of_one(void *b)
{
    return emulator_take_turn(b);
}

static bool run_apart(const struct work *w)
{
    static struct block block; /* its stacks stay */
    enum turn last = TURN_ENDED;
    if (!emulator_reserve(&block, w, MAX_THREADS)) abort();
    const uint64_t mode = qrn_float_mode_enter(); /* subnormal floats are flushed, as built */
    for (size_t i = 0; i < emulator_grid_blocks(w) && last == TURN_ENDED; i++) {
        emulator_begin_block(&block, w, i);
        last = emulator_take_turns(turn_of_one, &block);
    }
    qrn_float_mode_leave(mode);
    if (last == TURN_IDLE) emulator_complain_of_yields(&block);
    free(block.shared);
    return last == TURN_ENDED;
}

size_t emulator_grid_blocks(const struct work *w)
{
    return (size_t)w->grid.x * w->grid.y * w->grid.z;
}

bool emulator_run_grid(const struct work *w)
{
    running = w;
    emulator_message[0] = 0;
    emulated_block_size = w->block;
    emulated_grid_size = w->grid;
    return w->together || w->n_cluster ? emulator_run_together(w) : run_apart(w);
}
