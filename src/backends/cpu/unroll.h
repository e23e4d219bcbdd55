/* SPDX-License-Identifier: MIT
 * UNROLL, or UNROLL_16 for more than 8 turns, before a loop whose count is constant once the
 * function is inlined, so that arrays of vectors become registers.  gcc must be told; clang does it
 * by itself, and if told does it before inlining, when the count is not yet known.  NO_UNROLL before one
 * whose body has all the work that registers suffice for. */
#ifndef QUERN_BACKENDS_CPU_UNROLL_H
#define QUERN_BACKENDS_CPU_UNROLL_H

#if defined(__clang__)
#define UNROLL
#define UNROLL_16
#define NO_UNROLL _Pragma("clang loop unroll(disable)")
#else
#define UNROLL _Pragma("GCC unroll 8")
#define UNROLL_16 _Pragma("GCC unroll 16")
#define NO_UNROLL _Pragma("GCC unroll 1")
#endif

#endif
