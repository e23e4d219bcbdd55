/* SPDX-License-Identifier: MIT
 * Leave to use AMX, and the proof that it works. */
#include "base/amx.h"

#include "base/cpu_features.h"

#if defined(__x86_64__) && defined(__linux__)
#include <errno.h>
#include <immintrin.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ARCH_REQ_XCOMP_PERM_ = 0x1023, XFEATURE_XTILEDATA_ = 18 };
enum { ROWS = 16, K = 4, COLUMNS = 16 }; /* of C = A B; K in groups of 32 bits */

#define TILES __attribute__((target("amx-tile,amx-int8,amx-bf16")))

/* gcc 12 takes _tile_loadconfig to read 8 bytes and drops what else was written. */
TILES static void configure(const struct qrn_amx_config *config)
{
    __asm__ volatile("ldtilecfg %0" ::"m"(*config) : "memory");
}

/* Tiles 0 = 0 + 1 * 2, of bytes. */
TILES static void multiply_int8(const void *a, const void *b, void *c)
{
    _tile_zero(0);
    _tile_loadd(1, a, 4 * K);
    _tile_loadd(2, b, 4 * COLUMNS);
    _tile_dpbssd(0, 1, 2);
    _tile_stored(0, c, 4 * COLUMNS);
}

/* The same of bf16. */
TILES static void multiply_bf16(const void *a, const void *b, void *c)
{
    _tile_zero(0);
    _tile_loadd(1, a, 4 * K);
    _tile_loadd(2, b, 4 * COLUMNS);
    _tile_dpbf16ps(0, 1, 2);
    _tile_stored(0, c, 4 * COLUMNS);
}

static bool int8_is_right(void)
{
    int8_t a[ROWS][4 * K], b[K][4 * COLUMNS];
    int32_t c[ROWS][COLUMNS];
    for (int i = 0; i < ROWS * 4 * K; i++)
        a[i / (4 * K)][i % (4 * K)] = (int8_t)(i * 37 % 251 - 125);
    for (int i = 0; i < K * 4 * COLUMNS; i++)
        b[i / (4 * COLUMNS)][i % (4 * COLUMNS)] = (int8_t)(i * 53 % 241 - 120);
    multiply_int8(a, b, c);
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLUMNS; j++) {
            int32_t want = 0;
            for (int k = 0; k < 4 * K; k++) want += a[i][k] * b[k / 4][4 * j + k % 4];
            if (c[i][j] != want) return false;
        }
    return true;
}

/* Small whole numbers, which bf16 holds. */
static uint16_t bf16_of(int n)
{
    const float value = (float)n;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static bool bf16_is_right(void)
{
    uint16_t a[ROWS][2 * K], b[K][2 * COLUMNS];
    float c[ROWS][COLUMNS];
    for (int i = 0; i < ROWS * 2 * K; i++) a[i / (2 * K)][i % (2 * K)] = bf16_of(i * 37 % 61 - 30);
    for (int i = 0; i < K * 2 * COLUMNS; i++)
        b[i / (2 * COLUMNS)][i % (2 * COLUMNS)] = bf16_of(i * 53 % 59 - 29);
    multiply_bf16(a, b, c);
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLUMNS; j++) {
            int want = 0;
            for (int k = 0; k < 2 * K; k++)
                want += ((i * 2 * K + k) * 37 % 61 - 30) *
                        ((k / 2 * 2 * COLUMNS + 2 * j + k % 2) * 53 % 59 - 29);
            if (c[i][j] != (float)want) return false;
        }
    return true;
}

/* In the child: whatever handles signals in the parent stays out, and nobody wants a core file. */
static void be_alone(void)
{
    static const int signals[] = {SIGILL, SIGSEGV, SIGBUS, SIGFPE, SIGTRAP, SIGSYS};
    const struct rlimit none = {0, 0};
    const struct sigaction plain = {.sa_handler = SIG_DFL};
    (void)setrlimit(RLIMIT_CORE, &none);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        (void)sigaction(signals[i], &plain, NULL);
}

/* Tells what works as it is shown, so that what came before a death counts. */
static void child(uint64_t features, volatile uint64_t *proven)
{
    struct qrn_amx_config config = {.palette = 1};
    be_alone();
    for (int i = 0; i < 3; i++) {
        config.rows[i] = i == 2 ? K : ROWS;
        config.row_bytes[i] = i == 1 ? 4 * K : 4 * COLUMNS;
    }
    configure(&config);
    if ((features & QRN_CPU_AMX_INT8) && int8_is_right())
        *proven |= QRN_CPU_AMX_INT8 | QRN_CPU_AMX_TILE;
    if ((features & QRN_CPU_AMX_BF16) && bf16_is_right())
        *proven |= QRN_CPU_AMX_BF16 | QRN_CPU_AMX_TILE;
}

uint64_t qrn_amx_proven(uint64_t features)
{
    if (!(features & QRN_CPU_AMX_TILE)) return 0;
    if (syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM_, XFEATURE_XTILEDATA_) != 0) return 0;
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return 0;
    /* A fork that sends no SIGCHLD. */
    const long pid = syscall(SYS_clone, 0L, 0L, 0L, 0L, 0L);
    if (pid == 0) {
        child(features, page);
        (void)syscall(SYS_exit_group, 0); /* ThreadSanitizer makes _exit wait for a second */
    }
    if (pid > 0)
        while (waitpid((pid_t)pid, NULL, __WALL) < 0 && errno == EINTR) continue;
    uint64_t proven;
    memcpy(&proven, page, sizeof proven);
    (void)munmap(page, 4096);
    return proven & features;
}
#else
uint64_t qrn_amx_proven(uint64_t features)
{
    (void)features;
    return 0;
}
#endif
