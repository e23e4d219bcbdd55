/* SPDX-License-Identifier: MIT
 * What a pipeline of Hopper's is made of, for sm_90a: barriers in shared memory that count arrivals and
 * bytes, bulk copies that arrive there, barriers of some of a block's threads, registers that move from
 * one group of warps to another.
 *
 * A barrier's phases are numbered 0, 1, 2 ...; a wait for a phase is given its parity.  In a ring of
 * n stages the consumer of round i waits for parity (i / n) & 1 of `full`, the producer for the other
 * one of `empty`, which before the first round lets it through. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_PIPELINE_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_PIPELINE_CUH

#include "backends/cuda/device/mma.cuh"
#include "backends/cuda/tensor_map_cuda.h"

/* In shared memory. */
struct __align__(8) qrn_barrier {
    uint64_t state;
};

#ifdef QRN_EMULATED
#include "emulator/pipeline_on_cpu.h"
#else

/* By one thread; the others see it after qrn_barriers_are_ready and a __syncthreads. */
static __device__ __forceinline__ void qrn_barrier_init(qrn_barrier *b, int n_arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(qrn_shared_address(b)), "r"(n_arrivals)
                 : "memory");
}
static __device__ __forceinline__ void qrn_barriers_are_ready()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

static __device__ __forceinline__ void qrn_barrier_arrive(qrn_barrier *b)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(qrn_shared_address(b)) : "memory");
}

/* Arrives, and the phase ends only when n_bytes of bulk copies have come too. */
static __device__ __forceinline__ void qrn_barrier_arrive_expecting(qrn_barrier *b, int n_bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(qrn_shared_address(b)),
                 "r"(n_bytes)
                 : "memory");
}

/* Arrives when all that this thread has begun with qrn_copy16_async is there; the barrier has counted
 * that arrival from its initialisation. */
static __device__ __forceinline__ void qrn_barrier_arrive_after_copies(qrn_barrier *b)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(qrn_shared_address(b))
                 : "memory");
}

static __device__ __forceinline__ void qrn_barrier_wait(qrn_barrier *b, int parity)
{
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;\n"
                 "}\n" ::"r"(qrn_shared_address(b)),
                 "r"(parity)
                 : "memory");
}

/* Whether the phase has ended; on the emulator, where a thread that asks again and again holds up all others, waits for it. */
static __device__ __forceinline__ bool qrn_barrier_is_past(qrn_barrier *b, int parity)
{
    uint32_t is_past;
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "mbarrier.test_wait.parity.shared::cta.b64 done, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, done;\n"
                 "}\n"
                 : "=r"(is_past)
                 : "r"(qrn_shared_address(b)), "r"(parity)
                 : "memory");
    return is_past != 0;
}

/* Writes of this thread to shared memory come before what wgmma and bulk copies do after the next
 * barrier. */
static __device__ __forceinline__ void qrn_fence_async()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* The same for global memory that bulk copies read. */
static __device__ __forceinline__ void qrn_fence_async_global()
{
    asm volatile("fence.proxy.async.global;" ::: "memory");
}

/* One lane of a warp that comes here as a whole.  The compiler knows that it is one: what it works out is in registers of
 * the warp, from where bulk copies take their addresses, and copies are no loop over lanes, as they are with lane 0. */
static __device__ __forceinline__ bool qrn_elected()
{
    uint32_t is_elected;
    asm volatile("{\n"
                 ".reg .pred elected;\n"
                 "elect.sync _|elected, 0xffffffff;\n"
                 "selp.u32 %0, 1, 0, elected;\n"
                 "}\n"
                 : "=r"(is_elected));
    return is_elected != 0;
}

/* Waits for n_threads of the block, whole warps, which name the same barrier: 1 .. 15. */
static __device__ __forceinline__ void qrn_sync_some(int barrier, int n_threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(n_threads) : "memory");
}
/* Counts as there without waiting. */
static __device__ __forceinline__ void qrn_arrive_some(int barrier, int n_threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(n_threads) : "memory");
}

/* n_bytes, a multiple of 16, from address to address, both aligned to 16; one thread. */
static __device__ __forceinline__ void qrn_bulk_copy(void *shared, const void *global, int n_bytes,
                                                     qrn_barrier *b)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 ::"r"(qrn_shared_address(shared)),
                 "l"(global), "r"(n_bytes), "r"(qrn_shared_address(b))
                 : "memory");
}

/* The box of a map among the params (backends/cuda/tensor_map.h) at element x, y (, z) of the tensor, innermost first; what lies outside comes as 0 and
 * counts among the bytes.  One thread; shared is aligned to 128 bytes, swizzled boxes to 1024. */
static __device__ __forceinline__ void qrn_tensor_copy(void *shared, const qrn_tensor_map *map, int x,
                                                       int y, int z, qrn_barrier *b)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(qrn_shared_address(shared)),
                 "l"(map), "r"(x), "r"(y), "r"(z), "r"(qrn_shared_address(b))
                 : "memory");
}

/* The same of four dimensions. */
static __device__ __forceinline__ void qrn_tensor_copy4(void *shared, const qrn_tensor_map *map, int x, int y, int z, int w,
                                                        qrn_barrier *b)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(qrn_shared_address(shared)),
                 "l"(map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(qrn_shared_address(b))
                 : "memory");
}

/* The same by a map of anywhere: element x, line y of what begins at `at`, a multiple of 64. */
static __device__ __forceinline__ void qrn_tensor_copy_at(void *shared, const qrn_tensor_map *map,
                                                          int x, int y, const void *at,
                                                          qrn_barrier *b)
{
    const uint64_t address = (uint64_t)(uintptr_t)at;
    const int near = (int)(address & ((1u << QRN_MAP_NEAR_BITS) - 1)) / QRN_MAP_STEP,
              far = (int)(address >> QRN_MAP_NEAR_BITS) - 1;
    qrn_tensor_copy4(shared, map, x, y, near, far, b);
}

/* Registers of each thread of this warpgroup from here on, a multiple of 8.  All of its warps. */
template <int n> static __device__ __forceinline__ void qrn_registers_more()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(n));
}
template <int n> static __device__ __forceinline__ void qrn_registers_fewer()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(n));
}

/* A word that another block writes or reads meanwhile. */
static __device__ __forceinline__ uint64_t qrn_load_relaxed(const uint64_t *p)
{
    uint64_t x;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(x) : "l"(p) : "memory");
    return x;
}
static __device__ __forceinline__ void qrn_store_relaxed(uint64_t *p, uint64_t x)
{
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(p), "l"(x) : "memory");
}

/* Blocks of a cluster (n_cluster of struct qrn_cuda_grid) are there at once and reach each other's shared memory: from
 * where all have begun, which all threads of all of them say and wait for once, until the block has ended that the
 * memory is of.  Of what was done before, waiting shows barriers that are ready and nothing else. */
static __device__ __forceinline__ void qrn_cluster_arrive()
{
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
static __device__ __forceinline__ void qrn_cluster_wait()
{
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/* x goes to the same place in the cluster's block of that rank, and counts at its barrier b as four bytes of a copy do. */
static __device__ __forceinline__ void qrn_send_to_block(float *shared, float x, qrn_barrier *b, int rank)
{
    asm volatile("{\n"
                 ".reg .b32 to, at;\n"
                 "mapa.shared::cluster.u32 to, %0, %3;\n"
                 "mapa.shared::cluster.u32 at, %1, %3;\n"
                 "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.f32 [to], %2, [at];\n"
                 "}\n" ::"r"(qrn_shared_address(shared)),
                 "r"(qrn_shared_address(b)), "f"(x), "r"(rank)
                 : "memory");
}

/* p, rounded up in shared memory; n is a power of 2. */
static __device__ __forceinline__ void *qrn_align_shared(void *p, unsigned n)
{
    return (char *)p + (-qrn_shared_address(p) & (n - 1));
}

#endif

/* What a barrier counts of a warp: one lane arrives when all are there.  compute-sanitizer's racecheck does not
 * see that they meet, of which the compiler leaves a branch where they are together; with QRN_RACECHECK
 * defined all lanes arrive, and what is found then is a race. */
#ifdef QRN_RACECHECK
enum { QRN_WARP_ARRIVALS = 32 };
#else
enum { QRN_WARP_ARRIVALS = 1 };
#endif

static __device__ __forceinline__ void qrn_barrier_arrive_warp(qrn_barrier *b)
{
    __syncwarp();
    if (qrn_lane() < QRN_WARP_ARRIVALS) qrn_barrier_arrive(b);
}

/* Barriers of N places of a ring, place i's by make(i): warps 0 .. N_WARPS - 1 make those of a place in turn, one thread each.  A
 * thread that goes through all places in a loop takes 70 clocks for each.  Before a __syncthreads. */
template <int N, int N_WARPS, class Make> static __device__ __forceinline__ void qrn_make_barriers(const Make &make)
{
    const int warp = (int)threadIdx.x / 32;
    if (warp >= N_WARPS || !qrn_elected()) return;
#pragma unroll
    for (int first = 0; first < N; first += N_WARPS)
        if (first + warp < N) make(first + warp);
    qrn_barriers_are_ready();
}

/* The pointer stays in a register from here on, and is not worked out again where it is needed. */
template <class T> static __device__ __forceinline__ void qrn_hold(T *&p)
{
#ifndef QRN_EMULATED
    asm volatile("" : "+l"(p));
#else
    (void)p;
#endif
}

/* The same of numbers, which are no sum of another one and a constant, and are not converted again, from here on. */
static __device__ __forceinline__ void qrn_hold(int &x)
{
#ifndef QRN_EMULATED
    asm volatile("" : "+r"(x));
#else
    (void)x;
#endif
}

static __device__ __forceinline__ void qrn_hold(float &x)
{
#ifndef QRN_EMULATED
    asm volatile("" : "+f"(x));
#else
    (void)x;
#endif
}

/* The same of one to shared memory. */
template <class T> static __device__ __forceinline__ void qrn_hold_shared(T *&p)
{
#ifndef QRN_EMULATED
    uint32_t address = qrn_shared_address(p);
    asm volatile("" : "+r"(address));
    p = (T *)__cvta_shared_to_generic(address);
#else
    (void)p;
#endif
}

/* A pointer to shared memory which all lanes of the warp have alike: what is worked out from it need be worked
 * out once for all of them.  All lanes of the warp come here. */
template <class T> static __device__ __forceinline__ T *qrn_uniform_shared(T *p)
{
#ifndef QRN_EMULATED
    const uint32_t address = __shfl_sync(QRN_ALL_OF_WARP, qrn_shared_address(p), 0);
    p = (T *)__cvta_shared_to_generic(address);
#endif
    return p;
}

/* The same of a number. */
static __device__ __forceinline__ int qrn_uniform(int x)
{
    return __shfl_sync(QRN_ALL_OF_WARP, x, 0);
}

/* A ring's stage and parity, moved on round after round. */
template <int n_stages> struct qrn_ring {
    int stage = 0, parity = 0;
    __device__ __forceinline__ void next()
    {
        if (++stage < n_stages) return;
        stage = 0;
        parity ^= 1;
    }
};

/* The same of a ring of n stages, which is known when it runs. */
struct qrn_ring_place {
    int at = 0, parity = 0;
    __device__ __forceinline__ void next(int n)
    {
        if (++at < n) return;
        at = 0;
        parity ^= 1;
    }
    /* The next place of an owner, of n_owners that take places in turn and begin at that of their number; how many
     * stages on that is.  A place is always the same owner's: one that runs ahead would take a round before for
     * its own. */
    template <int n_owners> __device__ __forceinline__ int next_of(int owner, int n)
    {
        const int before = at;
        at += n_owners;
        if (at < n) return n_owners;
        at = owner;
        parity ^= 1;
        return n - before + owner;
    }
};

#endif
