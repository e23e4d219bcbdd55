/* SPDX-License-Identifier: MIT
 * Blocks that wait for each other, all of a launch or cluster after cluster: each has a thread of the
 * host, whose variables are its static shared memory.  They take turns, so that one runs at a time and
 * always in the same order. */
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/float_mode.h"
#include "emulator/block.h"

struct seat {
    struct block *block;
    pthread_t thread;
    sem_t begins, ends; /* a turn */
    enum turn turn;     /* how the last one ended */
    bool leaves;
};

struct seats {
    struct seat *all;
    size_t n;
};

static const struct work *under_way;

/* Where cmocka finds a crash in a thread that is not the test's it ends the program without a word. */
__attribute__((destructor)) static void tell_of_crash(void)
{
    if (under_way)
        (void)fprintf(stderr, "emulated device: %s never ended, block (%u, %u, %u) crashed\n",
                      under_way->kernel->name, emulated_block_index.x, emulated_block_index.y,
                      emulated_block_index.z);
}

static void wait_for(sem_t *s)
{
    while (sem_wait(s) != 0) {}
}

static void *seat_main(void *p)
{
    struct seat *s = p;
    const uint64_t mode = qrn_float_mode_enter();
    for (wait_for(&s->begins); !s->leaves; wait_for(&s->begins)) {
        s->turn = emulator_take_turn(s->block);
        (void)sem_post(&s->ends);
    }
    qrn_float_mode_leave(mode);
    return NULL;
}

static bool sit_down(struct seat *s, const struct work *w)
{
    s->block = calloc(1, sizeof *s->block);
    if (!s->block) return false;
    const size_t n_threads = (size_t)w->block.x * w->block.y * w->block.z;
    if (emulator_reserve(s->block, w, n_threads) && sem_init(&s->begins, 0, 0) == 0 &&
        sem_init(&s->ends, 0, 0) == 0 && pthread_create(&s->thread, NULL, seat_main, s) == 0)
        return true;
    emulator_release(s->block);
    free(s->block);
    return false;
}

static void leave(struct seat *s)
{
    s->leaves = true;
    (void)sem_post(&s->begins);
    (void)pthread_join(s->thread, NULL);
    (void)sem_destroy(&s->begins);
    (void)sem_destroy(&s->ends);
    emulator_release(s->block);
    free(s->block);
}

/* A turn of each block that has not ended. */
static enum turn turn_of_all(void *p)
{
    const struct seats *seats = p;
    enum turn turn = TURN_ENDED;
    for (size_t i = 0; i < seats->n; i++) {
        struct seat *s = &seats->all[emulator_faults.reverse ? seats->n - 1 - i : i];
        if (s->turn == TURN_ENDED) continue;
        (void)sem_post(&s->begins);
        wait_for(&s->ends);
        if (s->turn == TURN_FAILED) return TURN_FAILED;
        if (s->turn != TURN_IDLE)
            turn = TURN_WENT_ON;
        else if (turn == TURN_ENDED)
            turn = TURN_IDLE;
    }
    return turn;
}

/* Blocks first and up, each at its beginning. */
static void begin(const struct seats *seats, const struct work *w, size_t first,
                  struct cluster *cluster)
{
    *cluster = (struct cluster){.n = w->n_cluster};
    for (size_t i = 0; i < seats->n; i++) {
        struct seat *s = &seats->all[i];
        s->turn = TURN_WENT_ON;
        s->block->place = i;
        emulator_begin_block(s->block, w, first + i);
        if (!w->n_cluster) continue;
        s->block->cluster = cluster;
        cluster->blocks[i] = s->block;
    }
}

static void complain(const struct seats *seats)
{
    const struct seat *s = seats->all;
    while (s->turn == TURN_ENDED) s++;
    emulator_complain_of_yields(s->block);
}

bool emulator_run_together(const struct work *w)
{
    const size_t n_all = emulator_grid_blocks(w), n = w->n_cluster ? w->n_cluster : n_all;
    struct seats seats = {.all = calloc(n, sizeof *seats.all)};
    struct cluster cluster;
    enum turn last = TURN_ENDED;
    under_way = w;
    while (seats.all && seats.n < n && sit_down(&seats.all[seats.n], w)) seats.n++;
    if (seats.n < n) {
        last = TURN_FAILED;
        (void)snprintf(emulator_message, sizeof emulator_message,
                       "%s: no memory for %zu blocks at once", w->kernel->name, n);
    }
    for (size_t first = 0; first < n_all && last == TURN_ENDED; first += n) {
        begin(&seats, w, first, &cluster);
        last = emulator_take_turns(turn_of_all, &seats);
    }
    if (last == TURN_IDLE) complain(&seats);
    for (size_t i = 0; i < seats.n; i++) leave(&seats.all[i]);
    free(seats.all);
    under_way = NULL;
    return last == TURN_ENDED;
}
