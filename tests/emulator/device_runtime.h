/* SPDX-License-Identifier: MIT
 * What device code that was compiled for the CPU asks of the emulator. */
#ifndef QUERN_TESTS_EMULATOR_DEVICE_RUNTIME_H
#define QUERN_TESTS_EMULATOR_DEVICE_RUNTIME_H

#include <stdbool.h>
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
/* Lets others go on, of the block and then of other blocks: in a loop that waits for what they write. */
void emulated_yield(void);

enum { EMULATED_DEPOSIT = 64 };

/* Waits for the lanes in mask, each of which gives n_bytes (up to EMULATED_DEPOSIT); what lane i gave
 * is at EMULATED_DEPOSIT * i of what is returned, until the next call.  what names the operation,
 * which must be the same for all. */
const unsigned char *emulated_exchange(unsigned mask, const char *what, const void *data,
                                       size_t n_bytes);
unsigned emulated_active_lanes(void);

/* Copies of 4 or 16 bytes, n_bytes of them read and the rest 0, that are done only when they are waited for:
 * until then the place is poisoned. */
void emulated_copy_begin(void *to, const void *from, int n_bytes, int n_all);
void emulated_copies_commit(void);
void emulated_copies_wait(int n_groups_left);

/* Bulk copies, which count at a barrier: from address to address, and by a map (emulator/tensor_map.h). */
void emulated_bulk_copy(void *to, const void *from, int n_bytes, uint64_t *barrier);
void emulated_tensor_copy(void *to, const void *map, int x, int y, int z, uint64_t *barrier);
void emulated_tensor_copy_4d(void *to, const void *map, const int *at, uint64_t *barrier);

/* Registers of this thread from here on. */
void emulated_registers(int n);

/* Barriers in shared memory: see backends/cuda/device/pipeline.cuh. */
void emulated_barrier_init(uint64_t *barrier, int n_arrivals);
void emulated_barrier_arrive(uint64_t *barrier, int n_bytes);
void emulated_barrier_arrive_after_copies(uint64_t *barrier);
void emulated_barrier_wait(uint64_t *barrier, int parity);
void emulated_sync_some(int barrier, int n_threads, bool waits);

/* Clusters: likewise.  What is sent lies in dynamic shared memory, and so does the barrier. */
void emulated_cluster_arrive(void);
void emulated_cluster_wait(void);
void emulated_send_to_block(void *shared, uint32_t word, uint64_t *barrier, int rank);

/* Addresses of dynamic shared memory as instructions have them: it begins at 128. */
unsigned emulated_shared_address(const void *p);
void *emulated_shared_pointer(unsigned address);
/* For instructions that know no shared memory: it is an error there. */
void emulated_want_global(const void *p);

/* The thread in its block; the block among all that ever ran, and among those that run together. */
unsigned emulated_thread_number(void);
uint64_t emulated_block_number(void);
size_t emulated_block_place(void);

#ifdef __cplusplus
}
#endif
#endif
