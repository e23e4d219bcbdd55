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

#endif
