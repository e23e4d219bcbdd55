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

void emulator_expect_nothing_left(void *emulator, const char *after)
{
    const struct emulated_counts c = emulator_counts(emulator);
    if (c.allocations || c.shared_ranges || c.modules || c.streams || c.events || c.graphs ||
        c.graph_execs || c.contexts || c.depth)
        fail_msg("left after %s: %ld allocations, %ld shared ranges, %ld modules, %ld streams, "
                 "%ld events, %ld graphs, %ld instances, %ld contexts, depth %ld",
                 after, c.allocations, c.shared_ranges, c.modules, c.streams, c.events, c.graphs,
                 c.graph_execs, c.contexts, c.depth);
}

void emulated_set(const char *variable, const char *value)
{
    assert_int_equal(value ? setenv(variable, value, 1) : unsetenv(variable), 0);
}

void expect_status(enum qrn_status got, enum qrn_status want, const struct qrn_error *err,
                   const char *fragment)
{
    if (got != want || !strstr(err->text, fragment))
        fail_msg("wants %s with \"%s\", got %s: %s", qrn_status_name(want), fragment,
                 qrn_status_name(got), err->text);
}

struct qrn_device *emulated_open_late(struct qrn_error *err)
{
    emulated_set("QRN_EMULATED_LATE", "1");
    struct qrn_device *dev = op_test_open_gpu(err);
    emulated_set("QRN_EMULATED_LATE", NULL);
    return dev;
}

enum qrn_status emulated_fault_in_turn(
    void *emulator, const char *variable, int step, enum qrn_status want,
    enum qrn_status (*session)(struct qrn_device *dev, void *context, struct qrn_error *err),
    void *context, int *n_failed)
{
    *n_failed = 0;
    for (int n = 1;; n += step, ++*n_failed) {
        struct qrn_error err = {.text = ""};
        char text[16], after[64];
        (void)snprintf(text, sizeof text, "%d", n);
        (void)snprintf(after, sizeof after, "%s %d", variable, n);
        emulated_set(variable, text);
        struct qrn_device *dev = op_test_open_gpu(&err);
        emulated_set(variable, NULL);
        const enum qrn_status s = session(dev, context, &err);
        qrn_device_close(dev);
        emulator_expect_nothing_left(emulator, after);
        if (s == want) continue;
        if (s != QRN_OK && s != QRN_ERR_UNSUPPORTED)
            fail_msg("%s %d: %s: %s", variable, n, qrn_status_name(s), err.text);
        return s;
    }
}

void emulated_faults_in_turn(int allocations, int launches,
                             enum qrn_status (*session)(struct qrn_device *dev, void *context,
                                                        struct qrn_error *err),
                             void *context)
{
    int n_failed;
    void *emulator = emulator_open();
    if (!emulator) skip();
    (void)emulated_fault_in_turn(emulator, "QRN_EMULATED_FAIL_ALLOC", allocations, QRN_ERR_MEMORY,
                                 session, context, &n_failed);
    (void)emulated_fault_in_turn(emulator, "QRN_EMULATED_LOSE_AT_LAUNCH", launches, QRN_ERR_DEVICE,
                                 session, context, &n_failed);
    (void)dlclose(emulator);
}

long emulated_launches(void)
{
    void *emulator = emulator_open();
    if (!emulator) return 0;
    const long n = emulator_counts(emulator).launches;
    (void)dlclose(emulator);
    return n;
}
