/* SPDX-License-Identifier: MIT
 * Random weight matrices of every type for op tests: finite, of about unit size. */
#ifndef QUERN_TESTS_WEIGHTS_H
#define QUERN_TESTS_WEIGHTS_H

#include <string.h>
#include "base/half.h"
#include "ops/matmul_common.h"
#include "support/op_test.h"

/* X(NAME, bytes into a block at which f16 scales stand; -1: none) */
#define WEIGHT_TYPES(X)                                                                            \
    X(F32, -1, -1)                                                                                 \
    X(F16, 0, -1) X(BF16, -1, -1) X(F64, -1, -1) X(F8_E4M3, -1, -1) X(Q4_0, 0, -1) X(Q4_1, 0, 2)   \
        X(Q5_0, 0, -1) X(Q5_1, 0, 2) X(Q8_0, 0, -1) X(Q8_1, 0, 2) X(Q2_K, 80, 82) X(Q3_K, 108, -1) \
            X(Q4_K, 0, 2) X(Q5_K, 0, 2) X(Q6_K, 208, -1) X(Q8_K, -1, -1) X(IQ2_XXS, 0, -1)         \
                X(IQ2_XS, 0, -1) X(IQ3_XXS, 0, -1) X(IQ1_S, 0, -1) X(IQ4_NL, 0, -1)                \
                    X(IQ3_S, 0, -1) X(IQ2_S, 0, -1) X(IQ4_XS, 0, -1) X(IQ1_M, -1, -1)              \
                        X(TQ1_0, 52, -1) X(TQ2_0, 64, -1) X(MXFP4, -1, -1) X(NVFP4, -1, -1)        \
                            X(Q1_0, 0, -1) X(Q2_0, 0, -1) X(MLX_Q2, -1, -1) X(MLX_Q3, -1, -1)      \
                                X(MLX_Q4, -1, -1) X(MLX_Q5, -1, -1) X(MLX_Q6, -1, -1)              \
                                    X(MLX_Q8, -1, -1)

static const struct {
    enum qrn_dtype dtype;
    int half[2];
} weight_types[] = {
#define X(NAME, a, b) {QRN_##NAME, {a, b}},
    WEIGHT_TYPES(X)
#undef X
};
enum { N_WEIGHT_TYPES = sizeof weight_types / sizeof *weight_types };

/* Its place in weight_types. */
static inline size_t weight_type_of(enum qrn_dtype dtype)
{
    size_t t = 0;
    while (weight_types[t].dtype != dtype) t++;
    return t;
}

struct weights {
    struct qrn_tensor w, scales, biases; /* the last two absent but for MLX codes */
};

/* One block of random bytes with scales put right. */
static inline void random_block(struct rng *r, size_t i_type, uint8_t *b)
{
    const enum qrn_dtype t = weight_types[i_type].dtype;
    const int n = qrn_dtype_info(t)->block_bytes;
    for (int i = 0; i < n; i++) b[i] = (uint8_t)rng_next(r);
    for (int i = 0; i < 2; i++) {
        if (weight_types[i_type].half[i] < 0) continue;
        const uint16_t h = qrn_float_to_f16((float)rng_uniform(r, -0.02, 0.02));
        memcpy(b + weight_types[i_type].half[i], &h, sizeof h);
    }
    const float f = (float)rng_normal(r);
    const double d = (double)f;
    const uint16_t bf = qrn_float_to_bf16(f);
    if (t == QRN_F32 || t == QRN_Q8_K) memcpy(b, &f, sizeof f);
    if (t == QRN_F64) memcpy(b, &d, sizeof d);
    if (t == QRN_BF16) memcpy(b, &bf, sizeof bf);
    if (t == QRN_F8_E4M3) b[0] &= 0xb7;              /* below 2 */
    if (t == QRN_IQ1_M) b[55] = (b[55] & 15) | 0x20; /* the top of an f16 spread over four fields */
    if (t == QRN_MXFP4) b[0] = (uint8_t)(120 + rng_below(r, 8));
    if (t == QRN_NVFP4)
        for (int i = 0; i < 4; i++) b[i] = (uint8_t)(0x28 + rng_below(r, 16));
}

/* shape: n_dims dimensions, the last in whole blocks; group and scales_type for MLX codes. */
static inline struct weights random_weights(struct mem *m, struct rng *r, size_t i_type, int n_dims,
                                            const int64_t *shape, int64_t group,
                                            enum qrn_dtype scales_type)
{
    const enum qrn_dtype t = weight_types[i_type].dtype;
    struct weights out = {.w = mem_tensor(m, t, n_dims, shape)};
    const struct qrn_dtype_info *info = qrn_dtype_info(t);
    const int64_t n = qrn_tensor_n_elements(&out.w) / info->block_elements;
    for (int64_t i = 0; i < n; i++)
        random_block(r, i_type, (uint8_t *)out.w.data + i * info->block_bytes);
    if (!qrn_is_mlx(t)) return out;
    int64_t by_group[QRN_MAX_DIMS];
    memcpy(by_group, shape, sizeof *shape * (size_t)n_dims);
    by_group[n_dims - 1] /= group;
    out.scales = mem_tensor(m, scales_type, n_dims, by_group);
    out.biases = mem_tensor(m, scales_type, n_dims, by_group);
    const int64_t n_groups = qrn_tensor_n_elements(&out.scales);
    for (int64_t i = 0; i < n_groups; i++) {
        qrn_ref_set_flat(&out.scales, i, rng_uniform(r, 0.002, 0.05));
        qrn_ref_set_flat(&out.biases, i, rng_uniform(r, -1.0, 0.5));
    }
    return out;
}

/* w as dev packs it, in guarded memory; absent when there is no packed form. */
static inline struct qrn_tensor pack_weights(struct mem *m, struct qrn_device *dev,
                                             const struct weights *w,
                                             enum qrn_activation_type activation)
{
    struct qrn_matmul_pack_args p = {
        .w = w->w, .scales = w->scales, .biases = w->biases, .activation = activation};
    struct qrn_tensor packed = w->w;
    struct qrn_error err;
    if (qrn_matmul_packed_bytes(dev, &p, &packed.n_bytes, &err) != QRN_OK)
        fail_msg("%s", err.text);
    if (packed.n_bytes == 0) return (struct qrn_tensor){0};
    packed.data = mem_guarded(m, packed.n_bytes);
    memset(packed.data, 0xcd, packed.n_bytes);
    p.packed = qrn_tensor_1d(QRN_U8, packed.data, (int64_t)packed.n_bytes);
    if (qrn_matmul_pack(dev, &p, &err) != QRN_OK) fail_msg("%s", err.text);
    return packed;
}

#endif
