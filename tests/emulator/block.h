/* SPDX-License-Identifier: MIT
 * The threads of the block that runs: block.c lets them run and meet, async.c has what comes later. */
#ifndef QUERN_TESTS_EMULATOR_BLOCK_H
#define QUERN_TESTS_EMULATOR_BLOCK_H

#include "emulator/emulator.h"
#include "emulator/fiber.h"

enum state { RUNS, AT_BLOCK, AT_WARP, AT_SOME, AT_PHASE, ENDED };

/* Copies under way; group counts the thread's commits.  With a barrier: nothing is copied, the thread
 * arrives there. */
struct copy {
    void *to;
    const void *from;
    int n_bytes, n_all;
    unsigned group;
    uint64_t *barrier;
};
enum { MAX_COPIES = 512 };

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
    int some;          /* AT_SOME: the barrier's number */
    uint64_t *barrier; /* AT_PHASE: waits for the end of a phase of this parity */
    int parity;
};

enum { MAX_THREADS = 1024, WARP = 32 };

struct block {
    struct thread threads[MAX_THREADS], *self;
    struct fiber scheduler;
    unsigned n_threads;
    uint64_t number;   /* of all blocks that ever ran */
    char *shared;      /* where addresses of shared memory begin */
    int n_arrived[16]; /* at barriers of some threads */
    unsigned n_registers; /* that threads asked for */
};
extern struct block emulator_block;

/* Whether it waits for all others wherever it may (QRN_EMULATED_SLOW_WARP). */
bool emulator_is_slow(const struct thread *t);
/* Leaves the thread that runs in a state in which it waits. */
void emulator_wait(enum state state);

/* A new block: nothing is under way. */
void emulator_async_begin(void);
/* Does what the end of a phase of that parity can wait for; whether it has ended. */
bool emulator_phase_ended(uint64_t *barrier, int parity);

#endif
