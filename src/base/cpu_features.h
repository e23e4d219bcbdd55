/* SPDX-License-Identifier: MIT
 * What this processor and operating system offer, found once. */
#ifndef QUERN_BASE_CPU_FEATURES_H
#define QUERN_BASE_CPU_FEATURES_H

#include <stddef.h>

#include <quern/status.h>

/* X(NAME, "text").  The order is that of age: disabling one also disables what stands after it and
 * needs it (see cpu_features.c). */
#define QRN_CPU_FEATURE_LIST(X)     \
    X(AVX2, "avx2")                 \
    X(FMA, "fma")                   \
    X(F16C, "f16c")                 \
    X(AVX_VNNI, "avx_vnni")         \
    X(AVX512, "avx512f")            \
    X(AVX512_VNNI, "avx512_vnni")   \
    X(AVX512_BF16, "avx512_bf16")   \
    X(AMX_TILE, "amx_tile")         \
    X(AMX_INT8, "amx_int8")         \
    X(AMX_BF16, "amx_bf16")         \
    X(STREAMS, "streams")           \
    X(DEEP_STREAMS, "deep_streams") \
    X(BF16_DOTS, "bf16_dots")       \
    X(NEON, "neon")                 \
    X(DOTPROD, "dotprod")           \
    X(I8MM, "i8mm")

enum qrn_cpu_feature_bit {
#define X(name, text) QRN_CPU_BIT_##name,
    QRN_CPU_FEATURE_LIST(X)
#undef X
    QRN_CPU_BIT_COUNT
};
enum qrn_cpu_feature {
#define X(name, text) QRN_CPU_##name = 1 << QRN_CPU_BIT_##name,
    QRN_CPU_FEATURE_LIST(X)
#undef X
};
/* STREAMS: a core's own prefetchers keep up with memory that is read in order.  Said of every AMD
 * processor; measured on a Zen 4.  DEEP_STREAMS: they do not look far enough where a loop does more than read; AMD from
 * family 26 on, measured on a Zen 5.  BF16_DOTS: AVX512_BF16's dot product takes no longer than a multiply-add of as many
 * lanes; said of AMD's. A Xeon's takes 4.2 times as long, and so is slower than the two that it stands for.
 * AVX512 stands for F, BW, VL, DQ and CD together.  The AMX features as found here are those of the
 * processor and of the state that the system saves; whether they may be used: base/amx.h. */

uint64_t qrn_cpu_features(void);
/* Of the largest cache that a core reads through; 0: not known. */
size_t qrn_cpu_cache_bytes(void);
const char *qrn_cpu_feature_name(int bit); /* NULL past the last */

/* Takes the comma-separated names, and all that needs them, out of *features.
 * Errors: QRN_ERR_ARGUMENT on an unknown name. */
enum qrn_status qrn_cpu_disable(uint64_t *features, const char *names, struct qrn_error *err);

#endif
