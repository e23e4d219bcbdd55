/* SPDX-License-Identifier: MIT
 * Which weights the CPU takes for near: those that the last runs have read, if all since then fits into half of the
 * cache. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <quern/ops_matmul.h>

#include "backends/cpu/cpu.h"
#include "backends/cpu/recent.h"

enum { CACHE = 1 << 20, MOST_STEPS = 4 };

/* A run of n products, of weights that begin at at + i and have n_bytes each, and a step without any. */
static bool run(struct qrn_cpu_recent *recent, char *at, size_t n, size_t n_bytes)
{
    static const struct qrn_kernel product = {.op = QRN_OP_matmul}, other = {.op = QRN_OP_add};
    struct qrn_matmul_args args[MOST_STEPS];
    struct qrn_step steps[MOST_STEPS + 1];
    for (size_t i = 0; i < n; i++) {
        args[i] = (struct qrn_matmul_args){.w = {.data = at + i, .n_bytes = n_bytes}};
        steps[i] = (struct qrn_step){.kernel = &product, .args = &args[i]};
    }
    steps[n] = (struct qrn_step){.kernel = &other};
    return qrn_cpu_recent_run(recent, steps, n + 1, CACHE);
}

static char memory[2][64];

static void test_same(void **state)
{
    struct qrn_cpu_recent recent = {0};
    (void)state;
    assert_false(run(&recent, memory[0], 2, CACHE / 4));
    assert_true(run(&recent, memory[0], 2, CACHE / 4));
    assert_false(run(&recent, memory[0], 3, CACHE / 8));
    assert_false(run(&recent, memory[1], 3, CACHE / 8));
}

/* Layers and the head of a model, each a run of its own. */
static void test_in_turn(void **state)
{
    struct qrn_cpu_recent recent = {0};
    (void)state;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(run(&recent, memory[0], 3, CACHE / 8), i > 0);
        assert_int_equal(run(&recent, memory[1], 1, CACHE / 8), i > 0);
        assert_false(run(&recent, memory[1], 0, 0));
    }
}

static void test_too_much(void **state)
{
    struct qrn_cpu_recent recent = {0};
    (void)state;
    for (int i = 0; i < 3; i++) assert_false(run(&recent, memory[0], 1, CACHE / 2 + 1));
    for (int i = 0; i < 3; i++) {
        assert_false(run(&recent, memory[0] + 8, 1, CACHE / 4));
        assert_false(run(&recent, memory[1], 2, CACHE / 4));
    }
    assert_true(run(&recent, memory[1], 2, CACHE / 4));
    for (int i = 0; i < 2; i++) assert_false(run(&recent, memory[1], 2, SIZE_MAX / 2));
}

static void test_long_ago(void **state)
{
    struct qrn_cpu_recent recent = {0};
    (void)state;
    for (int i = 0; i <= QRN_CPU_RECENT_RUNS; i++) assert_false(run(&recent, memory[0] + i, 1, 64));
    assert_false(run(&recent, memory[0], 1, 64));
    assert_true(run(&recent, memory[0] + QRN_CPU_RECENT_RUNS, 1, 64));
}

static void see(void *lane, const void *args)
{
    const struct qrn_matmul_args *a = args;
    *(bool *)a->out.data = ((const struct qrn_cpu_lane *)lane)->near;
}

/* What a product's kernel is told: by a device that knows its cache, from the second time on. */
static void test_told(void **state)
{
    static const struct qrn_kernel kernel = {.op = QRN_OP_matmul, .name = "see", .run = see};
    const struct qrn_device_options options = {.n_threads = 1};
    struct qrn_device *dev = NULL;
    bool near = true;
    const struct qrn_matmul_args args = {.w = {.data = memory[0], .n_bytes = sizeof memory[0]},
                                         .out = {.data = &near}};
    (void)state;
    assert_int_equal(qrn_device_open(&options, &dev, NULL), QRN_OK);
    assert_int_equal(qrn_kernel_run(dev, &kernel, &args, NULL), QRN_OK);
    assert_false(near);
    assert_int_equal(qrn_kernel_run(dev, &kernel, &args, NULL), QRN_OK);
    assert_int_equal(near, qrn_cpu_cache_bytes() > 0);
    qrn_device_close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same),
        cmocka_unit_test(test_in_turn),
        cmocka_unit_test(test_too_much),
        cmocka_unit_test(test_long_ago),
        cmocka_unit_test(test_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
