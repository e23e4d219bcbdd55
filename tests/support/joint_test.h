/* SPDX-License-Identifier: MIT
 * What tests of joints share: the same recording on a GPU that joins steps and on one that does not,
 * with the same memory, all of which is compared. */
#ifndef QUERN_TESTS_JOINT_TEST_H
#define QUERN_TESTS_JOINT_TEST_H

#include "support/op_test.h"

/* One piece of memory of the device and what it holds at first: 0xff where nothing was put. */
struct joint_test {
    struct qrn_device *joined, *apart;
    struct qrn_buffer *memory;
    char *first;
    size_t n_bytes, n_used;
    struct rng r;
    struct qrn_encoder *enc; /* what a case records */
};

/* Skips the test without a GPU. */
void joint_test_open(struct joint_test *j, uint64_t seed);
void joint_test_open_bytes(struct joint_test *j, uint64_t seed, size_t n_bytes); /* of memory */
void joint_test_close(struct joint_test *j);

/* A contiguous tensor: poison, normal numbers * scale, or what values says (of n elements). */
struct qrn_tensor joint_test_poison(struct joint_test *j, enum qrn_dtype dtype, int n_dims,
                                    const int64_t *shape);
struct qrn_tensor joint_test_filled(struct joint_test *j, double scale, int n_dims,
                                    const int64_t *shape);
struct qrn_tensor joint_test_ints(struct joint_test *j, const int32_t *values, int64_t n);
struct qrn_tensor joint_test_addresses(struct joint_test *j, const uint64_t *values, int64_t n0,
                                       int64_t n1);
/* What the host has put where t is. */
void *joint_test_at(struct joint_test *j, const void *address);

/* Records by record(j, context), submits twice on either device, and compares all memory after each.
 * n_saved: how many launches less the joined one has; looked at where the GPU is emulated. */
void joint_test_run(struct joint_test *j, void (*record)(struct joint_test *j, const void *context),
                    const void *context, long n_saved, const char *what);

#endif
