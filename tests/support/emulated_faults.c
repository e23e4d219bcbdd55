/* SPDX-License-Identifier: MIT
 * Faults of the emulated driver. */
#include "support/emulated_faults.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *emulator_open(void)
{
    const char *path = getenv("QRN_TEST_CUDA");
    if (!path) path = QRN_TEST_EMULATOR;
    return *path && strcmp(path, "real") != 0 ? dlopen(path, RTLD_NOW) : NULL;
}

struct emulated_counts emulator_counts(void *emulator)
{
    void (*count)(struct emulated_counts *);
    void *p = dlsym(emulator, "emulated_count");
    struct emulated_counts c = {0};
    assert_non_null(p);
    memcpy(&count, &p, sizeof p);
    count(&c);
    return c;
}

static void expect_nothing_left(void *emulator, const char *variable, int n)
{
    const struct emulated_counts c = emulator_counts(emulator);
    if (c.allocations || c.shared_ranges || c.graph_execs || c.graphs || c.streams || c.modules)
        fail_msg("%s %d: left are %ld allocations, %ld shared ranges, %ld graphs", variable, n,
                 c.allocations, c.shared_ranges, c.graph_execs);
}

enum qrn_status emulated_fault_in_turn(
    void *emulator, const char *variable, int step, enum qrn_status want,
    enum qrn_status (*session)(struct qrn_device *dev, void *context, struct qrn_error *err),
    void *context, int *n_failed)
{
    *n_failed = 0;
    for (int n = 1;; n += step, ++*n_failed) {
        struct qrn_error err = {.text = ""};
        char text[16];
        (void)snprintf(text, sizeof text, "%d", n);
        assert_int_equal(setenv(variable, text, 1), 0);
        struct qrn_device *dev = op_test_open_gpu(&err);
        assert_int_equal(unsetenv(variable), 0);
        const enum qrn_status s = session(dev, context, &err);
        qrn_device_close(dev);
        expect_nothing_left(emulator, variable, n);
        if (s == want) continue;
        if (s != QRN_OK && s != QRN_ERR_UNSUPPORTED)
            fail_msg("%s %d: %s: %s", variable, n, qrn_status_name(s), err.text);
        return s;
    }
}

long emulated_launches(void)
{
    void *emulator = emulator_open();
    if (!emulator) return 0;
    const long n = emulator_counts(emulator).launches;
    (void)dlclose(emulator);
    return n;
}
