/* SPDX-License-Identifier: MIT
 * What device code that was compiled for the CPU asks of the emulator. */
#ifndef QUERN_TESTS_EMULATOR_DEVICE_RUNTIME_H
#define QUERN_TESTS_EMULATOR_DEVICE_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct emulated_dim {
    unsigned x, y, z;
};

/* A __global__ function; registers itself when the library is loaded. */
struct emulated_kernel {
    const char *name;
    void (*invoke)(const void *params);
    size_t params_bytes;
    struct emulated_kernel *next;
};
void emulated_register(struct emulated_kernel *kernel);

/* The thread that runs, and its block. */
extern struct emulated_dim emulated_thread_index, emulated_block_index, emulated_block_size,
    emulated_grid_size;
extern unsigned emulated_lane;
extern void *emulated_dynamic_shared;

/* Waits for all threads of the block. */
void emulated_sync_block(void);

enum { EMULATED_DEPOSIT = 64 };

/* Waits for the lanes in mask, each of which gives n_bytes (up to EMULATED_DEPOSIT); what lane i gave
 * is at EMULATED_DEPOSIT * i of what is returned, until the next call.  what names the operation,
 * which must be the same for all. */
const unsigned char *emulated_exchange(unsigned mask, const char *what, const void *data,
                                       size_t n_bytes);
unsigned emulated_active_lanes(void);

/* Copies of 16 bytes, n_bytes of them read and the rest 0, that are done only when they are waited for:
 * until then the place is poisoned. */
void emulated_copy_begin(void *to, const void *from, int n_bytes);
void emulated_copies_commit(void);
void emulated_copies_wait(int n_groups_left);

#ifdef __cplusplus
}
#endif
#endif
