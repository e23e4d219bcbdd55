/* SPDX-License-Identifier: MIT
 * A driver library without a GPU: the entry points that quern uses, and the device code run on the
 * CPU.  One kernel runs at a time, in the thread that launches it: at once, or when somebody waits.  Its
 * blocks run one after the other; those of a cooperative launch, or of a cluster, take turns (together.c).
 *
 * Faults on demand, read from the environment at cuInit (the version: whenever it is asked for):
 *     QRN_EMULATED_DRIVER_VERSION   12080 is 12.8
 *     QRN_EMULATED_SM               compute capability, 90; 80 is 8.0
 *     QRN_EMULATED_MULTIPROCESSORS  4; a cooperative launch has no more blocks
 *     QRN_EMULATED_FAIL_ALLOC       this allocation from now on fails, counted from 1
 *     QRN_EMULATED_LOSE_AT_LAUNCH   at this launch from now on the context is lost
 *     QRN_EMULATED_MEMORY           bytes that the device has; 2^40 without
 *     QRN_EMULATED_LATE             work is done when somebody waits for it
 *     QRN_EMULATED_REVERSE          warps and lanes, and blocks that take turns, run in reverse order: what
 *                                   differs is a race
 *     QRN_EMULATED_SLOW_WARP        this warp of each block does a step only when no other can: what then
 *                                   never ends counts on its speed */
#ifndef QUERN_TESTS_EMULATOR_H
#define QUERN_TESTS_EMULATOR_H

#include <cuda.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "emulator/counts.h"
#include "emulator/device_runtime.h"

#define EXPORTED __attribute__((visibility("default")))

/* Of older headers. */
#undef cuEventElapsedTime
CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end);
/* ... and for tests. */
CUresult cuCtxCreate_v2(CUcontext *out, unsigned flags, CUdevice device);

struct CUctx_st {
    int retained; /* of the primary one */
    bool primary;
    CUresult lost;
};

/* What is done, at once or when a graph is launched. */
struct work {
    struct work *next;
    enum { WORK_LAUNCH, WORK_CALL, WORK_SET, WORK_COPY, WORK_EVENT } kind;
    const struct emulated_kernel *kernel;
    struct emulated_dim grid, block;
    size_t shared_bytes;
    bool together;      /* all blocks are there at once */
    unsigned n_cluster; /* or as many, along x, and then the next ones; 0: each by itself */
    void *to;
    const void *from;
    size_t n_bytes; /* of a call: its parameters */
    unsigned char value;
    const char *name; /* of a call */
    void (*call)(const void *params);
    _Alignas(128) unsigned char params[4096];
};

struct CUgraph_st {
    struct work *first, **last;
};

struct CUgraphExec_st {
    struct CUgraph_st graph;
};

struct CUstream_st {
    struct CUctx_st *context;
    struct CUgraph_st *recording;
};

struct faults {
    long fail_alloc, lose_at_launch; /* counted down; 0: never */
    int sm, multiprocessors, slow_warp; /* slow_warp -1: none */
    bool reverse, late;
    size_t memory;
};

/* One lock for all that follows.  A thread that has it and enters again has left a crashed launch behind,
 * as cmocka does: the program ends. */
void emulator_enter(void);
void emulator_leave(void);
extern struct faults emulator_faults;
extern struct emulated_counts emulator_counts;
extern char emulator_message[512]; /* of the last launch that failed, or "" */

/* The context that calls of this thread are about; its failure, or none. */
struct CUctx_st *emulator_context(void);
CUresult emulator_context_state(void);

/* Whether memory of the device can be touched.  The caller holds the lock, as below. */
void emulator_open_memory(bool open);

/* What waits to be done. */
void emulator_do_pending(void);

/* Does a piece of work, in open memory; a failure makes the context lost. */
void emulator_do(struct CUctx_st *context, const struct work *work);

/* Runs a grid; false: it cannot end, and emulator_message says why. */
bool emulator_run_grid(const struct work *work);
size_t emulator_grid_blocks(const struct work *work);

/* Queues a call of a library on the device: what it does there, a copy of what it is given.  Any thread. */
EXPORTED CUresult emulator_queue_call(CUstream stream, const char *name,
                                      void (*call)(const void *params), const void *params,
                                      size_t n_bytes);

/* Whether the device may use that address of the host. */
bool emulator_is_known(const void *address);

#endif
