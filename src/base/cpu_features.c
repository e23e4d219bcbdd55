/* SPDX-License-Identifier: MIT
 * What this processor and operating system offer, found once. */
#include "base/cpu_features.h"

#include <stdbool.h>
#include <string.h>
#include "base/error.h"

#if defined(__x86_64__)
#include <cpuid.h>

static uint64_t xcr0(void)
{
    uint32_t lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (uint64_t)hi << 32 | lo;
}

static uint64_t has(uint32_t word, int bit, uint64_t feature)
{
    return (word >> bit & 1u) ? feature : 0;
}

static bool is_amd(void)
{
    uint32_t a, b, c, d;
    return __get_cpuid(0, &a, &b, &c, &d) && b == signature_AMD_ebx && c == signature_AMD_ecx &&
           d == signature_AMD_edx;
}

static uint32_t family(uint32_t signature)
{
    const uint32_t base = signature >> 8 & 15u;
    return base == 15 ? base + (signature >> 20 & 255u) : base;
}

size_t qrn_cpu_cache_bytes(void)
{
    enum { MOST_CACHES = 8 };
    const uint32_t leaf = is_amd() ? 0x8000001du : 4;
    uint32_t a, b, c, d;
    size_t most = 0;
    for (uint32_t i = 0; i < MOST_CACHES && __get_cpuid_count(leaf, i, &a, &b, &c, &d); i++) {
        if ((a & 31) == 0) break; /* no more */
        const size_t n_bytes = (size_t)((b >> 22) + 1) * ((b >> 12 & 1023) + 1) *
                               ((b & 4095) + 1) * ((size_t)c + 1);
        if (n_bytes > most) most = n_bytes;
    }
    return most;
}

uint64_t qrn_cpu_features(void)
{
    uint32_t a, b, c, d;
    uint64_t f = is_amd() ? QRN_CPU_STREAMS : 0;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return f;
    if (f && family(a) >= 26) f |= QRN_CPU_DEEP_STREAMS;
    if (!(c >> 27 & 1u)) return f; /* no OSXSAVE */
    const uint64_t os = xcr0();
    if ((os & 6) != 6) return f; /* the system does not save ymm registers */
    f |= has(c, 12, QRN_CPU_FMA) | has(c, 29, QRN_CPU_F16C);
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return f;
    const uint32_t max_leaf = a;
    f |= has(b, 5, QRN_CPU_AVX2);
    const uint32_t avx512 =
        1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31; /* F DQ CD BW VL */
    if ((os & 0xe6) == 0xe6 && (b & avx512) == avx512) {
        f |= QRN_CPU_AVX512;
        f |= has(c, 11, QRN_CPU_AVX512_VNNI);
    }
    if ((os & 0x60000) == 0x60000 && has(d, 24, 1))
        f |= QRN_CPU_AMX_TILE | has(d, 25, QRN_CPU_AMX_INT8) | has(d, 22, QRN_CPU_AMX_BF16);
    if (max_leaf >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) {
        f |= has(a, 4, QRN_CPU_AVX_VNNI);
        if (f & QRN_CPU_AVX512)
            f |= has(a, 5, QRN_CPU_AVX512_BF16 | (is_amd() ? QRN_CPU_BF16_DOTS : 0));
    }
    return f;
}
#elif defined(__aarch64__)
#if defined(__linux__)
#include <sys/auxv.h>
uint64_t qrn_cpu_features(void)
{
    const unsigned long cap = getauxval(AT_HWCAP), cap2 = getauxval(AT_HWCAP2);
    uint64_t f = QRN_CPU_NEON;
    if (cap >> 20 & 1) f |= QRN_CPU_DOTPROD;
    if (cap2 >> 13 & 1) f |= QRN_CPU_I8MM;
    return f;
}
#elif defined(__APPLE__)
#include <sys/sysctl.h>
static uint64_t has(const char *name, uint64_t feature)
{
    int value = 0;
    size_t n = sizeof value;
    return sysctlbyname(name, &value, &n, NULL, 0) == 0 && value ? feature : 0;
}

uint64_t qrn_cpu_features(void)
{
    return QRN_CPU_NEON | has("hw.optional.arm.FEAT_DotProd", QRN_CPU_DOTPROD) |
           has("hw.optional.arm.FEAT_I8MM", QRN_CPU_I8MM);
}
#else
uint64_t qrn_cpu_features(void)
{
    return QRN_CPU_NEON;
}
#endif
#else
uint64_t qrn_cpu_features(void)
{
    return 0;
}
#endif

#if !defined(__x86_64__)
size_t qrn_cpu_cache_bytes(void)
{
    return 0;
}
#endif

static const char *const names[] = {
#define X(name, text) text,
    QRN_CPU_FEATURE_LIST(X)
#undef X
};

/* What falls with each: a kernel for AVX-512 may use everything that AVX2 machines have. */
static const uint64_t dependants[QRN_CPU_BIT_COUNT] = {
    [QRN_CPU_BIT_AVX2] = QRN_CPU_AVX_VNNI | QRN_CPU_AVX512 | QRN_CPU_AVX512_VNNI |
                         QRN_CPU_AVX512_BF16 | QRN_CPU_AMX_TILE | QRN_CPU_AMX_INT8 |
                         QRN_CPU_AMX_BF16,
    [QRN_CPU_BIT_FMA] = QRN_CPU_AVX512 | QRN_CPU_AVX512_VNNI | QRN_CPU_AVX512_BF16 |
                        QRN_CPU_AMX_TILE | QRN_CPU_AMX_INT8 | QRN_CPU_AMX_BF16,
    [QRN_CPU_BIT_F16C] = QRN_CPU_AVX512 | QRN_CPU_AVX512_VNNI | QRN_CPU_AVX512_BF16 |
                         QRN_CPU_AMX_TILE | QRN_CPU_AMX_INT8 | QRN_CPU_AMX_BF16,
    [QRN_CPU_BIT_AVX512] = QRN_CPU_AVX512_VNNI | QRN_CPU_AVX512_BF16 | QRN_CPU_AMX_TILE |
                           QRN_CPU_AMX_INT8 | QRN_CPU_AMX_BF16,
    [QRN_CPU_BIT_AVX512_VNNI] = QRN_CPU_AMX_INT8,
    [QRN_CPU_BIT_AMX_TILE] = QRN_CPU_AMX_INT8 | QRN_CPU_AMX_BF16,
    [QRN_CPU_BIT_STREAMS] = QRN_CPU_DEEP_STREAMS,
    [QRN_CPU_BIT_NEON] = QRN_CPU_DOTPROD | QRN_CPU_I8MM,
    [QRN_CPU_BIT_DOTPROD] = QRN_CPU_I8MM,
};

const char *qrn_cpu_feature_name(int bit)
{
    return bit >= 0 && bit < QRN_CPU_BIT_COUNT ? names[bit] : NULL;
}

enum qrn_status qrn_cpu_disable(uint64_t *features, const char *list, struct qrn_error *err)
{
    uint64_t off = 0;
    while (*list) {
        const size_t n = strcspn(list, ",");
        int bit = 0;
        while (bit < QRN_CPU_BIT_COUNT &&
               (strlen(names[bit]) != n || strncmp(names[bit], list, n) != 0))
            bit++;
        if (n && bit == QRN_CPU_BIT_COUNT)
            return qrn_fail(err, QRN_ERR_ARGUMENT, "unknown CPU feature \"%.*s\"", (int)n, list);
        if (n) off |= (1ull << bit) | dependants[bit];
        list += n + (list[n] == ',');
    }
    *features &= ~off;
    return QRN_OK;
}
