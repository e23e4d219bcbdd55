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
#define QRN_DEVICE_FUNCTION(name, n_threads, n_blocks, params)        \
    extern "C" __global__ void __launch_bounds__(n_threads, n_blocks) \
        name(const __grid_constant__ struct params p)
/* All of a block's dynamic shared memory, as an array. */
#define QRN_DYNAMIC_SHARED(type, name) extern __shared__ __align__(16) type name[]
#endif

#define QRN_ALL_OF_WARP 0xffffffffu

/* Asks for the line at p, which will be read soon. */
static __device__ __forceinline__ void qrn_prefetch(const void *p)
{
#ifdef QRN_EMULATED
    (void)p;
#else
    asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
#endif
}

#endif
