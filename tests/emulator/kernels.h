/* SPDX-License-Identifier: MIT
 * Parameters of the device code in kernels.cu. */
#ifndef QUERN_TESTS_EMULATOR_KERNELS_H
#define QUERN_TESTS_EMULATOR_KERNELS_H

#include <stdint.h>

#include "backends/cuda/tensor_map_cuda.h"

struct qrn_test_params {
    float *out;
};

struct qrn_test_mma_params {
    const void *a, *b;
    float *c;
    int32_t type;   /* 0: bf16, 1: f16, 2: bytes, 3: tf32 */
    int32_t n_rows; /* of b; the rest is 0 */
};

/* Blocks that wait for each other, up to 32 of them. */
struct qrn_test_ring_params {
    uint32_t *words;      /* of each round and block; zeros before */
    const uint32_t *data; /* QRN_TEST_RING_DATA for each block */
    uint32_t *out;        /* one of each block */
    int32_t n_rounds;
    int32_t mute; /* a block that tells the others nothing, or -1 */
};
enum { QRN_TEST_RING_DATA = 256, QRN_TEST_RING_THREADS = 64 };

/* Blocks of clusters, one of which may do something wrong. */
enum qrn_test_fault {
    QRN_TEST_NO_FAULT,
    QRN_TEST_IS_ABSENT,     /* never comes to the cluster's barrier */
    QRN_TEST_DOES_NOT_WAIT, /* but has arrived there */
    QRN_TEST_ARRIVES_TWICE,
    QRN_TEST_NEVER_ARRIVES, /* and waits */
    QRN_TEST_SENDS_EARLY,
    QRN_TEST_SENDS_OUT, /* of the cluster */
    QRN_TEST_IS_MUTE,
    QRN_TEST_LEAVES, /* and looks at nothing that others send */
};
struct qrn_test_cluster_params {
    float *out; /* of each block's threads */
    int32_t n_cluster, fault;
};
enum { QRN_TEST_CLUSTER_THREADS = 64, QRN_TEST_CLUSTER_ROUNDS = 6 };

/* c = a b of bf16, 64 x 128, k a multiple of 64. */
struct qrn_test_wgmma_params {
    struct qrn_tensor_map a, b; /* boxes of 64 x 64, those of b by k of 64 x 128 */
    const void *data;           /* for the pipeline's test */
    float *c;
    int32_t k, way, a_in_registers, b_in_slices; /* the latter by k alone */
};

#endif
