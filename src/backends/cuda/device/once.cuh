/* SPDX-License-Identifier: MIT
 * Bytes and boxes of a tensor that a launch reads once: the second cache is asked for them ahead, and drops
 * them before others when they were copied.  What a step needs again and again then stays there: small
 * tensors, tables, code. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_ONCE_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_ONCE_CUH

#include "backends/cuda/device/pipeline.cuh"

/* A function that says itself when the next launch's blocks may come (qrn_grid_begins) and when it waits
 * (qrn_grid_waits, which every thread that reads or writes what others have or need calls before). */
#ifdef QRN_EMULATED
#define QRN_DEVICE_FUNCTION_ITSELF QRN_DEVICE_FUNCTION_EARLY
#else
#define QRN_DEVICE_FUNCTION_ITSELF(name, n_threads, n_blocks, params) \
    QRN_DEVICE_FUNCTION_AFTER((void)0, (void)0, name, n_threads, n_blocks, params)
#endif

#ifdef QRN_EMULATED
static inline uint64_t qrn_read_once()
{
    return 0;
}
static inline void qrn_tensor_copy_hinted(void *shared, const qrn_tensor_map *map, int x, int y, int z,
                                          qrn_barrier *b, uint64_t)
{
    qrn_tensor_copy(shared, map, x, y, z, b);
}
static inline void qrn_bulk_copy_hinted(void *shared, const void *global, int n_bytes, qrn_barrier *b, uint64_t)
{
    qrn_bulk_copy(shared, global, n_bytes, b);
}
static inline void qrn_tensor_prefetch(const qrn_tensor_map *, int, int, int) {}
#else

/* What copies are told of lines that are read once. */
static __device__ __forceinline__ uint64_t qrn_read_once()
{
    uint64_t hint;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(hint));
    return hint;
}

/* qrn_bulk_copy and qrn_prefetch_bulk with such a hint. */
static __device__ __forceinline__ void qrn_bulk_copy_hinted(void *shared, const void *global, int n_bytes,
                                                            qrn_barrier *b, uint64_t hint)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
                 "[%0], [%1], %2, [%3], %4;" ::"r"(qrn_shared_address(shared)),
                 "l"(global), "r"(n_bytes), "r"(qrn_shared_address(b)), "l"(hint)
                 : "memory");
}

/* qrn_tensor_copy with such a hint. */
static __device__ __forceinline__ void qrn_tensor_copy_hinted(void *shared, const qrn_tensor_map *map, int x,
                                                              int y, int z, qrn_barrier *b, uint64_t hint)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
                 "[%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(qrn_shared_address(shared)),
                 "l"(map), "r"(x), "r"(y), "r"(z), "r"(qrn_shared_address(b)), "l"(hint)
                 : "memory");
}

/* Asks the second cache for a box; one thread.  It copies nothing: others may write there meanwhile. */
static __device__ __forceinline__ void qrn_tensor_prefetch(const qrn_tensor_map *map, int x, int y, int z)
{
    asm volatile("cp.async.bulk.prefetch.tensor.3d.L2.global [%0, {%1, %2, %3}];" ::"l"(map), "r"(x), "r"(y),
                 "r"(z)
                 : "memory");
}

#endif
#endif
