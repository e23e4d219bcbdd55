/* SPDX-License-Identifier: MIT
 * Weights and rounded rows for tests of joints of products. */
#ifndef QUERN_TESTS_JOINT_WEIGHTS_H
#define QUERN_TESTS_JOINT_WEIGHTS_H

#include <stdlib.h>

#include "support/joint_test.h"
#include "support/weights.h"

/* Random weights as the device packs them, at a place of the test's memory. */
static inline struct qrn_tensor joint_packed(struct joint_test *j, struct qrn_device *dev,
                                             enum qrn_dtype dtype, int n_dims, const int64_t *shape)
{
    struct mem m = {0};
    const struct weights w = random_weights(&m, &j->r, weight_type_of(dtype), n_dims, shape, 32, QRN_F16);
    struct qrn_tensor image = pack_weights(&m, dev, &w, QRN_ACT_Q8);
    const int64_t n_bytes = (int64_t)image.n_bytes;
    const struct qrn_tensor place = joint_test_poison(j, QRN_U8, 1, &n_bytes);
    memcpy(joint_test_at(j, place.data), image.data, image.n_bytes);
    image.data = place.data;
    mem_free_all(&m);
    return image;
}

/* Opens the test, where GPUs are emulated with so many multiprocessors, and a device that packs. */
static inline struct qrn_device *joint_test_open_packing(struct joint_test *j, uint64_t seed,
                                                         const char *n_multiprocessors)
{
    assert_int_equal(setenv("QRN_EMULATED_MULTIPROCESSORS", n_multiprocessors, 1), 0);
    joint_test_open(j, seed);
    struct qrn_device *dev = op_test_open_gpu_for(QRN_OP_matmul_pack);
    assert_int_equal(unsetenv("QRN_EMULATED_MULTIPROCESSORS"), 0);
    assert_non_null(dev);
    return dev;
}

/* T random rows of n elements, in blocks of 128. */
static inline struct qrn_tensor joint_rounded(struct joint_test *j, int64_t T, int64_t n)
{
    const struct qrn_tensor t = joint_test_poison(j, QRN_Q8_ACT, 2, (const int64_t[]){T, n});
    struct qrn_q8_act *blocks = joint_test_at(j, t.data);
    for (int64_t b = 0; b < T * n / 128; b++) {
        blocks[b] = (struct qrn_q8_act){.d = 0.01f};
        for (int i = 0; i < 128; i++) {
            blocks[b].q[i] = (int8_t)(rng_below(&j->r, 255) - 127);
            blocks[b].sum[i / 16] = (int16_t)(blocks[b].sum[i / 16] + blocks[b].q[i]);
        }
    }
    return t;
}

/* n0 random rows of n1 elements. */
static inline struct qrn_tensor joint_bf16(struct joint_test *j, int64_t n0, int64_t n1)
{
    const struct qrn_tensor t = joint_test_poison(j, QRN_BF16, 2, (const int64_t[]){n0, n1});
    uint16_t *x = joint_test_at(j, t.data);
    for (int64_t i = 0; i < n0 * n1; i++) x[i] = qrn_float_to_bf16((float)rng_normal(&j->r));
    return t;
}

#endif
