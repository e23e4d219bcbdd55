/* SPDX-License-Identifier: MIT
 * What this machine reaches at best: memory, and multiply-adds in registers. */
#include "peaks.h"

#include <stdlib.h>
#include <string.h>

#include "base/amx.h"
#include "base/cpu_features.h"
#include "base/memory.h"
#include "base/threads.h"
#include "clock.h"

#define ENOUGH_NS 500000000 /* of rounds: others may use the machine, too */
#define STEPS     2000000

/* --- loops as macros, so that each instruction set is one function --- */

/* Twelve sums that do not wait for each other; different beginnings, so that a compiler cannot make
 * one of them all. */
#define STEP(fma, a) a = fma(a, x, y)
#define TWELVE(fma) \
    STEP(fma, a0);  \
    STEP(fma, a1);  \
    STEP(fma, a2);  \
    STEP(fma, a3);  \
    STEP(fma, a4);  \
    STEP(fma, a5);  \
    STEP(fma, a6);  \
    STEP(fma, a7);  \
    STEP(fma, a8);  \
    STEP(fma, a9);  \
    STEP(fma, a10); \
    STEP(fma, a11)
#define FMA_LOOP(vector, fill, fma)                                                             \
    const vector x = fill(0.9999f), y = fill(1e-6f);                                            \
    vector a0 = fill(0.0f), a1 = fill(0.1f), a2 = fill(0.2f), a3 = fill(0.3f), a4 = fill(0.4f), \
           a5 = fill(0.5f), a6 = fill(0.6f), a7 = fill(0.7f), a8 = fill(0.8f), a9 = fill(0.9f), \
           a10 = fill(1.0f), a11 = fill(1.1f);                                                  \
    for (int64_t i = 0; i < n; i++) {                                                           \
        TWELVE(fma);                                                                            \
    }                                                                                           \
    a0 = fma(a0, a1, fma(a2, a3, fma(a4, a5, fma(a6, a7, fma(a8, a9, fma(a10, a11, x))))));     \
    memcpy(out, &a0, sizeof a0)

/* Eight sums, with prefetch. */
#define READ_LOOP(vector)                                                                        \
    vector sums[8] = {{0}};                                                                      \
    const vector *at = (const vector *)bytes, *end = at + n_bytes / sizeof(vector) / 8 * 8;      \
    for (; at < end; at += 8) {                                                                  \
        for (size_t k = 0; k < 8; k++) {                                                         \
            if (k * sizeof(vector) % 64 == 0) __builtin_prefetch((const char *)(at + k) + 4096); \
            sums[k] += at[k];                                                                    \
        }                                                                                        \
    }                                                                                            \
    for (size_t k = 1; k < 8; k++) sums[0] += sums[k];                                           \
    return sums[0][0]

struct probe {
    int n_lanes;
    void (*fma)(int64_t n, float *out); /* n * 12 * n_lanes multiply-adds */
    uint64_t (*read)(const void *bytes, size_t n_bytes);
    void (*dot)(int64_t n, float *out); /* n * 12 * 64 multiply-adds of bytes; or NULL */
    /* n * 12 products of 16x16 tiles over 64 bytes, 32 bf16; or NULL */
    void (*tile_bytes)(int64_t n, float *out), (*tile_bf16)(int64_t n, float *out);
};

#define ONE_FILL(value)  (value)
#define ONE_FMA(a, b, c) ((a) * (b) + (c))

static void fma_plain(int64_t n, float *out)
{
    FMA_LOOP(float, ONE_FILL, ONE_FMA);
}

typedef uint64_t words2 __attribute__((vector_size(16)));

static uint64_t read_plain(const void *bytes, size_t n_bytes)
{
    READ_LOOP(words2);
}

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX2   __attribute__((target("avx2,fma")))
#define AVX512 __attribute__((target("avx512f")))
#define VNNI   __attribute__((target("avx512f,avx512vnni")))
typedef uint64_t words4 __attribute__((vector_size(32)));
typedef uint64_t words8 __attribute__((vector_size(64)));

AVX2 static void fma_avx2(int64_t n, float *out)
{
    FMA_LOOP(__m256, _mm256_set1_ps, _mm256_fmadd_ps);
}

AVX2 static uint64_t read_avx2(const void *bytes, size_t n_bytes)
{
    READ_LOOP(words4);
}

AVX512 static void fma_avx512(int64_t n, float *out)
{
    FMA_LOOP(__m512, _mm512_set1_ps, _mm512_fmadd_ps);
}

AVX512 static uint64_t read_avx512(const void *bytes, size_t n_bytes)
{
    READ_LOOP(words8);
}

#define VNNI_FILL(value)  _mm512_set1_epi32((int)((value)*1e7f))
#define VNNI_DOT(a, x, y) _mm512_dpbusd_epi32(a, x, y)

VNNI static void dot_avx512vnni(int64_t n, float *out)
{
    FMA_LOOP(__m512i, VNNI_FILL, VNNI_DOT);
}

#define TILES __attribute__((target("amx-tile,amx-int8,amx-bf16")))

TILES static void tiles_begin(void)
{
    struct qrn_amx_config config = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        config.rows[i] = 16;
        config.row_bytes[i] = 64;
    }
    __asm__ volatile("ldtilecfg %0" ::"m"(config) : "memory");
    _tile_zero(6);
    _tile_zero(7);
}

#define SIX(op)  \
    op(0, 6, 7); \
    op(1, 6, 7); \
    op(2, 6, 7); \
    op(3, 6, 7); \
    op(4, 6, 7); \
    op(5, 6, 7)

TILES static void tile_bytes_amx(int64_t n, float *out)
{
    tiles_begin();
    for (int64_t i = 0; i < 2 * n; i++) {
        SIX(_tile_dpbssd);
    }
    _tile_release();
    *out = 0.0f;
}

TILES static void tile_bf16_amx(int64_t n, float *out)
{
    tiles_begin();
    for (int64_t i = 0; i < 2 * n; i++) {
        SIX(_tile_dpbf16ps);
    }
    _tile_release();
    *out = 0.0f;
}

static struct probe best_probe(uint64_t features)
{
    struct probe p = {1, fma_plain, read_plain, NULL, NULL, NULL};
    if (features & QRN_CPU_AVX2) p = (struct probe){8, fma_avx2, read_avx2, NULL, NULL, NULL};
    if (features & QRN_CPU_AVX512)
        p = (struct probe){16, fma_avx512, read_avx512, NULL, NULL, NULL};
    if (features & QRN_CPU_AVX512_VNNI) p.dot = dot_avx512vnni;
    if (features & QRN_CPU_AMX_INT8) p.tile_bytes = tile_bytes_amx;
    if (features & QRN_CPU_AMX_BF16) p.tile_bf16 = tile_bf16_amx;
    return p;
}
#elif defined(__aarch64__)
#include <arm_neon.h>

#define NEON_FMA(a, b, c) vfmaq_f32(c, a, b)

static void fma_neon(int64_t n, float *out)
{
    FMA_LOOP(float32x4_t, vdupq_n_f32, NEON_FMA);
}

static struct probe best_probe(uint64_t features)
{
    (void)fma_plain;
    (void)features;
    return (struct probe){4, fma_neon, read_plain, NULL, NULL, NULL};
}
#else
static struct probe best_probe(uint64_t features)
{
    (void)features;
    return (struct probe){1, fma_plain, read_plain, NULL, NULL, NULL};
}
#endif

/* --- all threads at once --- */

struct race {
    struct probe probe;
    void (*loop)(int64_t n, float *out);
    uint8_t *bytes; /* n_bytes for each thread */
    size_t n_bytes;
    volatile uint64_t sink; /* so that the loops are needed */
};

static void loop_lane(void *arg, int i)
{
    (void)i;
    struct race *race = arg;
    float out[16];
    race->loop(STEPS, out);
    if (out[0] == 12345.0f) race->sink = 1;
}

static void read_lane(void *arg, int i)
{
    struct race *race = arg;
    const uint64_t sum = race->probe.read(race->bytes + (size_t)i * race->n_bytes, race->n_bytes);
    if (sum == 12345) race->sink = sum;
}

/* The first half to the second. */
static void copy_lane(void *arg, int i)
{
    struct race *race = arg;
    uint8_t *from = race->bytes + (size_t)i * race->n_bytes;
    memcpy(from + race->n_bytes / 2, from, race->n_bytes / 2);
}

/* The shortest of many rounds, in seconds. */
static double shortest(const struct qrn_thread_pool *pool, void (*fn)(void *, int),
                       struct race *race)
{
    int64_t least = INT64_MAX;
    const int64_t end = now_ns() + ENOUGH_NS;
    do {
        const int64_t begin = now_ns();
        pool->run(pool->user, pool->n_threads, fn, race);
        const int64_t ns = now_ns() - begin;
        if (ns < least) least = ns;
    } while (now_ns() < end);
    return (double)least * 1e-9;
}

static double loop_rate(const struct qrn_thread_pool *pool, void (*loop)(int64_t, float *),
                        int n_lanes, struct race *race)
{
    if (!loop) return 0.0;
    race->loop = loop;
    return 2.0 * 12.0 * STEPS * n_lanes * pool->n_threads / shortest(pool, loop_lane, race);
}

struct peaks measure_peaks(int n_threads, uint64_t features, size_t n_bytes)
{
    struct peaks peaks = {0};
    struct qrn_thread_pool pool;
    if (qrn_threads_create(n_threads, NULL, &pool, NULL) != QRN_OK) return peaks;
    struct race race = {.probe = best_probe(features),
                        .n_bytes = n_bytes / (size_t)n_threads / 4096 * 4096};
    peaks.float32_ops = loop_rate(&pool, race.probe.fma, race.probe.n_lanes, &race);
    peaks.int8_ops = loop_rate(&pool, race.probe.dot, 64, &race);
    peaks.amx_int8_ops = loop_rate(&pool, race.probe.tile_bytes, 16 * 16 * 64, &race);
    peaks.amx_bf16_ops = loop_rate(&pool, race.probe.tile_bf16, 16 * 16 * 32, &race);
    const size_t n_all = race.n_bytes * (size_t)n_threads;
    race.bytes = qrn_alloc(NULL, n_all + 4096); /* the prefetch runs ahead */
    if (race.bytes) {
        memset(race.bytes, 1, n_all + 4096);
        peaks.read_bytes = (double)n_all / shortest(&pool, read_lane, &race);
        peaks.copy_bytes = (double)n_all / shortest(&pool, copy_lane, &race);
    }
    qrn_free(NULL, race.bytes, n_all + 4096);
    qrn_threads_destroy(&pool, NULL);
    return peaks;
}
