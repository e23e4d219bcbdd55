/* SPDX-License-Identifier: MIT
 * Tiles are granted, proven in a child that nobody notices, and off when asked; where the system
 * refuses them they are absent.  Skips on processors without. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/amx.h"
#include "base/cpu_features.h"
#include "core/device_impl.h"

static const uint64_t amx = QRN_CPU_AMX_TILE | QRN_CPU_AMX_INT8 | QRN_CPU_AMX_BF16;

static uint64_t offered(void)
{
    return qrn_cpu_features() & amx;
}

/* Linux refuses when signals are taken on a stack that cannot hold the tiles.  First of all tests:
 * leave that was given stays. */
static void test_refused(void **state)
{
    (void)state;
#if defined(__linux__)
    if (!offered()) skip();
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        static char stack[8192];
        const stack_t small = {.ss_sp = stack, .ss_size = 4096};
        if (sigaltstack(&small, NULL) != 0) _exit(2); /* the system asks for more from the start */
        _exit(qrn_amx_proven(offered()) ? 1 : 0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 2) skip();
    assert_int_equal(WEXITSTATUS(status), 0);
#endif
}

static void test_nothing_offered(void **state)
{
    (void)state;
    assert_int_equal(qrn_amx_proven(0), 0);
    assert_int_equal(qrn_amx_proven(QRN_CPU_AMX_INT8), 0); /* not without tiles */
    assert_int_equal(qrn_amx_proven(QRN_CPU_AVX2), 0);
}

static volatile sig_atomic_t n_signals;

static void count(int signal)
{
    (void)signal;
    n_signals++;
}

/* Whatever the program does with SIGCHLD: no signal comes, no child is left, the answer is one. */
static void test_unnoticed(void **state)
{
    (void)state;
    const uint64_t first = qrn_amx_proven(offered());
    struct sigaction old, own = {.sa_handler = count};
    sigaction(SIGCHLD, &own, &old);
    assert_int_equal(qrn_amx_proven(offered()), first);
    own.sa_handler = SIG_IGN;
    sigaction(SIGCHLD, &own, NULL);
    assert_int_equal(qrn_amx_proven(offered()), first);
    sigaction(SIGCHLD, &old, NULL);
    assert_int_equal(n_signals, 0);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
    assert_int_equal(first & ~offered(), 0);
}

static void test_device(void **state)
{
    (void)state;
    const uint64_t proven = qrn_amx_proven(offered());
    static const struct {
        struct qrn_device_options options;
        uint64_t left;
    } cases[] = {
        {{.n_threads = 1, .cpu_disable = ""},
         QRN_CPU_AMX_TILE | QRN_CPU_AMX_INT8 | QRN_CPU_AMX_BF16},
        {{.n_threads = 1, .cpu_disable = "", .amx = QRN_AMX_OFF}, 0},
        {{.n_threads = 1, .cpu_disable = "amx_tile"}, 0},
        {{.n_threads = 1, .cpu_disable = "amx_int8"}, QRN_CPU_AMX_TILE | QRN_CPU_AMX_BF16},
        {{.n_threads = 1, .cpu_disable = "avx512f"}, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct qrn_device *dev;
        assert_int_equal(qrn_device_open(&cases[i].options, &dev, NULL), QRN_OK);
        assert_int_equal(dev->features & amx, proven & cases[i].left);
        qrn_device_close(dev);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_nothing_offered),
        cmocka_unit_test(test_unnoticed),
        cmocka_unit_test(test_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
