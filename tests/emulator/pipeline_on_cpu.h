/* SPDX-License-Identifier: MIT
 * The functions of backends/cuda/device/pipeline.cuh.  Bulk copies are done when somebody waits for
 * their barrier; until then their place is poisoned. */
#ifndef QUERN_TESTS_EMULATOR_PIPELINE_ON_CPU_H
#define QUERN_TESTS_EMULATOR_PIPELINE_ON_CPU_H

static inline uint32_t qrn_shared_address(const void *p)
{
    return emulated_shared_address(p);
}
static inline void qrn_barrier_init(qrn_barrier *b, int n_arrivals)
{
    emulated_barrier_init(&b->state, n_arrivals);
}
static inline void qrn_barriers_are_ready() {}
static inline void qrn_barrier_arrive(qrn_barrier *b)
{
    emulated_barrier_arrive(&b->state, 0);
}
static inline void qrn_barrier_arrive_expecting(qrn_barrier *b, int n_bytes)
{
    emulated_barrier_arrive(&b->state, n_bytes);
}
static inline void qrn_barrier_arrive_after_copies(qrn_barrier *b)
{
    emulated_barrier_arrive_after_copies(&b->state);
}
static inline void qrn_barrier_wait(qrn_barrier *b, int parity)
{
    emulated_barrier_wait(&b->state, parity);
}
static inline bool qrn_barrier_is_past(qrn_barrier *b, int parity)
{
    emulated_barrier_wait(&b->state, parity);
    return true;
}
static inline void qrn_fence_async() {}
static inline void qrn_fence_async_global() {}
static inline void qrn_sync_some(int barrier, int n_threads)
{
    emulated_sync_some(barrier, n_threads, true);
}
static inline void qrn_arrive_some(int barrier, int n_threads)
{
    emulated_sync_some(barrier, n_threads, false);
}
static inline bool qrn_elected()
{
    return threadIdx.x % 32 == 0;
}
static inline void qrn_bulk_copy(void *shared, const void *global, int n_bytes, qrn_barrier *b)
{
    emulated_bulk_copy(shared, global, n_bytes, &b->state);
}
static inline void qrn_tensor_copy(void *shared, const qrn_tensor_map *map, int x, int y, int z,
                                   qrn_barrier *b)
{
    emulated_tensor_copy(shared, map, x, y, z, &b->state);
}
static inline void qrn_tensor_copy4(void *shared, const qrn_tensor_map *map, int x, int y, int z,
                                    int w, qrn_barrier *b)
{
    const int at[4] = {x, y, z, w};
    emulated_tensor_copy_4d(shared, map, at, &b->state);
}
static inline void qrn_tensor_copy_at(void *shared, const qrn_tensor_map *map, int x, int y,
                                      const void *from, qrn_barrier *b)
{
    const uint64_t address = (uint64_t)(uintptr_t)from;
    const int at[4] = {x, y, (int)(address & ((1u << QRN_MAP_NEAR_BITS) - 1)) / QRN_MAP_STEP,
                       (int)(address >> QRN_MAP_NEAR_BITS) - 1};
    if (address % QRN_MAP_STEP) abort();
    emulated_tensor_copy_4d(shared, map, at, &b->state);
}
static inline void qrn_cluster_arrive() { emulated_cluster_arrive(); }
static inline void qrn_cluster_wait() { emulated_cluster_wait(); }
static inline void qrn_send_to_block(float *shared, float x, qrn_barrier *b, int rank)
{
    emulated_send_to_block(shared, __float_as_uint(x), &b->state, rank);
}
template <int n> static inline void qrn_registers_more() { emulated_registers(n); }
template <int n> static inline void qrn_registers_fewer() { emulated_registers(n); }
static inline uint64_t qrn_load_relaxed(const uint64_t *p) { return *p; }
static inline void qrn_store_relaxed(uint64_t *p, uint64_t x) { *p = x; }
static inline void *qrn_align_shared(void *p, unsigned n)
{
    return (char *)p + (-qrn_shared_address(p) & (n - 1));
}

#endif
