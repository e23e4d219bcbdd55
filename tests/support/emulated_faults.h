/* SPDX-License-Identifier: MIT
 * Sessions on the emulated GPU in which one thing fails, each time a later one. */
#ifndef QUERN_TESTS_EMULATED_FAULTS_H
#define QUERN_TESTS_EMULATED_FAULTS_H

#include "emulator/counts.h"
#include "support/op_test.h"

/* The emulator's library, or NULL where a GPU is real or there is none; dlclose. */
void *emulator_open(void);
/* What is alive in it. */
struct emulated_counts emulator_counts(void *emulator);
/* Ends the test if that is anything; after: what came before, for the message. */
void emulator_expect_nothing_left(void *emulator, const char *after);

/* Sets an environment variable; NULL: takes it away. */
void emulated_set(const char *variable, const char *value);
/* Ends the test unless a call has ended so, with a text that has this in it. */
void expect_status(enum qrn_status got, enum qrn_status want, const struct qrn_error *err,
                   const char *fragment);

/* op_test_open_gpu; an emulated one does its work when somebody waits for it and not before. */
struct qrn_device *emulated_open_late(struct qrn_error *err);

/* Launches so far; 0 where they are not counted. */
long emulated_launches(void);

/* Runs sessions in which the n-th allocation (QRN_EMULATED_FAIL_ALLOC) fails, or the device is lost at
 * the n-th launch (QRN_EMULATED_LOSE_AT_LAUNCH), n = 1, 1 + step ..., until one ends otherwise than
 * with `want`.  Nothing may be left behind by any.  Returns what that last one ended with; *n_failed:
 * how many ended with want. */
enum qrn_status emulated_fault_in_turn(
    void *emulator, const char *variable, int step, enum qrn_status want,
    enum qrn_status (*session)(struct qrn_device *dev, void *context, struct qrn_error *err),
    void *context, int *n_failed);

/* The same of allocations and of launches, each so many further; skips the test without an emulator. */
void emulated_faults_in_turn(int allocations, int launches,
                             enum qrn_status (*session)(struct qrn_device *dev, void *context,
                                                        struct qrn_error *err),
                             void *context);

#endif
