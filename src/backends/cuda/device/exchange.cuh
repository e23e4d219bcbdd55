/* SPDX-License-Identifier: MIT
 * Words that blocks of one launch, all there at once, hand to each other: 0 until it is there, so that neither side
 * waits for other memory.  And a place where they meet. */
#ifndef QUERN_BACKENDS_CUDA_DEVICE_EXCHANGE_CUH
#define QUERN_BACKENDS_CUDA_DEVICE_EXCHANGE_CUH

#include "backends/cuda/device/pipeline.cuh"

/* Floats are stored as their complement, so that 0 is none: a NaN that no instruction makes. */
static __device__ __forceinline__ uint32_t qrn_word_of_float(float x)
{
    const uint32_t word = ~__float_as_uint(x);
    return word ? word : ~0x7fffffffu;
}
static __device__ __forceinline__ float qrn_float_of_word(uint32_t word)
{
    return __uint_as_float(~word);
}

/* Two halves of 16 bits likewise: 0 would be two NaNs that carry all that they can. */
static __device__ __forceinline__ uint32_t qrn_word_of_pair(uint32_t pair)
{
    return ~pair ? ~pair : ~0x7fff7fffu;
}

static __device__ __forceinline__ void qrn_publish(uint32_t *word, uint32_t x)
{
#ifdef QRN_EMULATED
    *word = x;
#else
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(word), "r"(x) : "memory");
#endif
}
/* At a multiple of 8. */
static __device__ __forceinline__ void qrn_publish_two(uint32_t *words, uint2 x)
{
#ifdef QRN_EMULATED
    *(uint2 *)words = x;
#else
    asm volatile("st.relaxed.gpu.global.v2.u32 [%0], {%1, %2};" ::"l"(words), "r"(x.x), "r"(x.y) : "memory");
#endif
}

static __device__ __forceinline__ uint32_t qrn_look_at(const uint32_t *word)
{
    uint32_t x;
#ifdef QRN_EMULATED
    x = *word;
#else
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(word) : "memory");
#endif
    return x;
}
static __device__ __forceinline__ uint4 qrn_look_at_four(const uint32_t *words)
{
    uint4 x;
#ifdef QRN_EMULATED
    x = *(const uint4 *)words;
#else
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "l"(words)
                 : "memory");
#endif
    return x;
}

/* A thread that waits lets others run. */
static __device__ __forceinline__ void qrn_yield()
{
#ifdef QRN_EMULATED
    emulated_yield();
#endif
}

static __device__ __forceinline__ bool qrn_is_there(uint32_t word)
{
    return word != 0;
}
static __device__ __forceinline__ bool qrn_is_there(const uint4 &words)
{
    return words.x && words.y && words.z && words.w;
}

/* What a lane has seen of N places, until the warp has seen all: those that are missing are looked at together. */
template <int N, class Look, typename T>
static __device__ __forceinline__ void qrn_wait_for_all(const Look &look, T (&seen)[N])
{
    while (true) {
        bool all = true;
#pragma unroll
        for (int i = 0; i < N; i++)
            if (!qrn_is_there(seen[i])) seen[i] = look(i);
#pragma unroll
        for (int i = 0; i < N; i++) all = all && qrn_is_there(seen[i]);
        if (__all_sync(QRN_ALL_OF_WARP, all)) return;
        qrn_yield();
    }
}
static __device__ __forceinline__ float4 qrn_floats_of(const uint4 &x)
{
    return make_float4(qrn_float_of_word(x.x), qrn_float_of_word(x.y), qrn_float_of_word(x.z), qrn_float_of_word(x.w));
}

/* This block comes to a place; one thread.  Returns what to wait for: the count only grows. */
static __device__ __forceinline__ uint64_t qrn_come_to(uint64_t *place)
{
    uint64_t before;
#ifdef QRN_EMULATED
    before = (*place)++;
#else
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
    asm volatile("atom.relaxed.gpu.global.add.u64 %0, [%1], 1;" : "=l"(before) : "l"(place) : "memory");
#endif
    return (before / gridDim.x + 1) * gridDim.x;
}

/* Waits until all blocks have come there. */
static __device__ __forceinline__ void qrn_meet_at(const uint64_t *place, uint64_t all)
{
    while (true) {
        uint64_t n;
#ifdef QRN_EMULATED
        n = *place;
#else
        asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(n) : "l"(place) : "memory");
#endif
        if (n >= all) return;
        qrn_yield();
    }
}

#endif
