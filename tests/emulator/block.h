/* SPDX-License-Identifier: MIT
 * The threads of a block: block.c lets them run and meet, async.c has what comes later, together.c blocks
 * that wait for each other, cluster.c what those of a cluster do. */
#ifndef QUERN_TESTS_EMULATOR_BLOCK_H
#define QUERN_TESTS_EMULATOR_BLOCK_H

#include "emulator/emulator.h"
#include "emulator/fiber.h"
#include "emulator/tensor_map.h"

enum state { RUNS, AT_BLOCK, AT_WARP, AT_SOME, AT_PHASE, AT_CLUSTER, YIELDS, ENDED };

/* Copies under way; group counts the thread's commits.  With a barrier: nothing is copied, the thread
 * arrives there. */
struct copy {
    void *to;
    const void *from;
    int n_bytes, n_all;
    unsigned group;
    uint64_t *barrier;
};
struct bulk {
    char *to;
    const char *from; /* NULL: by a map, or sent by another block */
    bool is_sent;
    uint32_t sent;
    int n_bytes, at[4];
    struct emulated_map map;
    uint64_t *barrier;
};
enum { MAX_COPIES = 512, MAX_BULKS = 1024 };

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
    bool yielded; /* or waited for other blocks, at the end of the turn before */
    bool ran;     /* since then */
    unsigned n_arrivals, n_waits; /* at its cluster's barrier */
};

/* SHARED_BEGINS: the address of dynamic shared memory. */
enum { MAX_THREADS = 1024, WARP = 32, MAX_CLUSTER = 8, SHARED_BEGINS = 128 };

struct cluster {
    struct block *blocks[MAX_CLUSTER];
    unsigned n, n_arrived, n_phases; /* arrived: threads of all of them */
};

struct block {
    struct thread threads[MAX_THREADS], *self;
    struct fiber scheduler;
    struct fiber_stacks stacks;
    unsigned n_threads;
    struct emulated_dim index;
    struct cluster *cluster; /* NULL: none */
    size_t place;         /* among those that run together */
    uint64_t number;      /* of all blocks that ever ran */
    char *shared;         /* where addresses of shared memory begin */
    size_t shared_bytes;  /* of dynamic shared memory */
    int n_arrived[16];    /* at barriers of some threads */
    unsigned n_registers; /* that threads asked for */
    struct bulk bulks[MAX_BULKS];
    int n_bulks;
    unsigned char given[MAX_THREADS][EMULATED_DEPOSIT]; /* by the lanes of a meeting */
};
extern struct block *emulator_block; /* whose turn it is */

/* Memory for blocks of a launch, of up to n_threads.  False: there is not so much. */
bool emulator_reserve(struct block *b, const struct work *work, size_t n_threads);
void emulator_release(struct block *b);
/* Puts all threads of block i of the launch at their beginning, in no cluster. */
void emulator_begin_block(struct block *b, const struct work *work, size_t i);

/* Lets the block run until it has ended, failed (emulator_message says why), or can go on only in threads
 * that wait for other blocks: idle if the turn before has ended with the very same ones. */
enum turn { TURN_ENDED, TURN_FAILED, TURN_IDLE, TURN_WENT_ON };
enum turn emulator_take_turn(struct block *b);
/* Turns until they end, fail or have been idle for too long. */
enum turn emulator_take_turns(enum turn (*turn)(void *), void *of);
/* Says of a block that was idle for too long which thread waits. */
void emulator_complain_of_yields(struct block *b);
bool emulator_run_together(const struct work *work);

/* Whether it waits for all others wherever it may (QRN_EMULATED_SLOW_WARP). */
bool emulator_is_slow(const struct block *b, const struct thread *t);
/* Leaves the thread that runs in a state in which it waits. */
void emulator_wait(enum state state);

/* Whether all have come to the phase of its cluster's barrier that the thread waits for. */
bool emulator_cluster_came(const struct block *b, const struct thread *t);
/* The block of that rank in the cluster, if the thread that runs may send to it; else NULL, and emulator_message says
 * why. */
struct block *emulator_peer(int rank);
/* By a thread, last of all. */
void emulator_thread_ends(void);

/* A new block: nothing is under way. */
void emulator_async_begin(struct block *b);
/* Whether all that others sent has been waited for; else emulator_message says so. */
bool emulator_async_end(const struct block *b);
/* Does what the end of a phase of that parity can wait for; whether it has ended. */
bool emulator_phase_ended(uint64_t *barrier, int parity);

#endif
