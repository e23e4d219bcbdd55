/* SPDX-License-Identifier: MIT
 * The floating-point mode of a thread: round to nearest, subnormals flushed, restored after.
 * Strong decay makes subnormals by the thousand, and processors handle each in microcode. */
#ifndef QUERN_BASE_FLOAT_MODE_H
#define QUERN_BASE_FLOAT_MODE_H

#include <stdint.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
static inline uint64_t qrn_float_mode_enter(void)
{
    const unsigned old = _mm_getcsr();
    _mm_setcsr((old & ~0x603fu) | 0x8040u | 0x1f80u); /* nearest; FTZ, DAZ; exceptions masked */
    return old;
}
static inline void qrn_float_mode_leave(uint64_t old)
{
    _mm_setcsr((unsigned)old);
}
#elif defined(__aarch64__)
static inline uint64_t qrn_float_mode_enter(void)
{
    uint64_t old;
    __asm__ volatile("mrs %0, fpcr" : "=r"(old));
    const uint64_t mode = (old & ~(3ull << 22)) | 1ull << 24; /* nearest; FZ */
    __asm__ volatile("msr fpcr, %0" : : "r"(mode));
    return old;
}
static inline void qrn_float_mode_leave(uint64_t old)
{
    __asm__ volatile("msr fpcr, %0" : : "r"(old));
}
#else
static inline uint64_t qrn_float_mode_enter(void)
{
    return 0;
}
static inline void qrn_float_mode_leave(uint64_t old)
{
    (void)old;
}
#endif
#endif
