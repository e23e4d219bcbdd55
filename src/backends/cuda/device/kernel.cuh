/* SPDX-License-Identifier: MIT
 * How device code is declared.  A function takes one struct by value, p; its name is unique among
 * all files and begins with qrn_.  n_threads are those of its blocks, n_blocks how many of them
 * should fit into a multiprocessor: together they say how many registers a thread may have.  The
 * same files are compiled for the tests' emulator, which defines QRN_EMULATED
 * (tests/emulator/cuda_on_cpu.h). */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_KERNEL_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_KERNEL_CUH

#include <stdint.h>

#ifndef QRN_EMULATED
#define QRN_DEVICE_FUNCTION(name, n_threads, n_blocks, params) \
    QRN_DEVICE_FUNCTION_AFTER(qrn_grid_begins(), qrn_grid_waits(), name, n_threads, n_blocks, params)
/* The same, but what is done before the function calls qrn_grid_waits overlaps with what was launched
 * before: it reads nothing but p, packed weights and numbers that stay (launch.h), and asks for lines. */
#define QRN_DEVICE_FUNCTION_EARLY(name, n_threads, n_blocks, params) \
    QRN_DEVICE_FUNCTION_AFTER(qrn_grid_begins(), (void)0, name, n_threads, n_blocks, params)
/* The same, and the next launch's blocks begin no sooner than it says by qrn_grid_begins. */
#define QRN_DEVICE_FUNCTION_LATE(name, n_threads, n_blocks, params) \
    QRN_DEVICE_FUNCTION_AFTER((void)0, (void)0, name, n_threads, n_blocks, params)
/* For what makes packed weights, or copies them: nothing that comes after begins before it has ended. */
#define QRN_DEVICE_FUNCTION_ALONE(name, n_threads, n_blocks, params) \
    QRN_DEVICE_FUNCTION_AFTER((void)0, qrn_grid_waits(), name, n_threads, n_blocks, params)
#define QRN_DEVICE_FUNCTION_AFTER(begins, first, name, n_threads, n_blocks, params) \
    static __device__ __forceinline__ void name##_body(const struct params &p); \
    extern "C" __global__ void __launch_bounds__(n_threads, n_blocks)           \
        name(const __grid_constant__ struct params p)                           \
    {                                                                           \
        begins;                                                                 \
        first;                                                                  \
        name##_body(p);                                                         \
    }                                                                           \
    static __device__ __forceinline__ void name##_body(const struct params &p)
/* All of a block's dynamic shared memory, as an array; aligned for bulk copies, which take longer to other places. */
#define QRN_DYNAMIC_SHARED(type, name) extern __shared__ __align__(128) type name[]
#endif

#define QRN_ALL_OF_WARP 0xffffffffu

#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 900
#define QRN_GRIDS_OVERLAP 1
#else
#define QRN_GRIDS_OVERLAP 0
#endif

/* The next launch's blocks may take their places as soon as each block of this one has begun. */
static __device__ __forceinline__ void qrn_grid_begins()
{
#if QRN_GRIDS_OVERLAP
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

/* All launches before this one are done, and what they wrote is seen. */
static __device__ __forceinline__ void qrn_grid_waits()
{
#if QRN_GRIDS_OVERLAP
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* Both, where a launch may let the next one's blocks begin when its own turn has come: all before it is done then. */
static __device__ __forceinline__ void qrn_grid_waits_letting(bool next)
{
    qrn_grid_waits();
    if (next) qrn_grid_begins();
}

/* Clocks of this multiprocessor; on the emulator they stand. */
#ifdef QRN_EMULATED
static inline long long qrn_clock()
{
    return 0;
}
#else
static __device__ __forceinline__ long long qrn_clock()
{
    return clock64();
}
#endif

/* Asks for the line at p, which will be read soon. */
static __device__ __forceinline__ void qrn_prefetch(const void *p)
{
#ifdef QRN_EMULATED
    (void)p;
#else
    asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
#endif
}

/* Asks for n_bytes from p on, both multiples of 16; one thread. */
static __device__ __forceinline__ void qrn_prefetch_bulk(const void *p, int n_bytes)
{
#if QRN_GRIDS_OVERLAP
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(p), "r"(n_bytes));
#else
    (void)p, (void)n_bytes;
#endif
}

#endif
