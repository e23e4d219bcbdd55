/* SPDX-License-Identifier: MIT
 * Chains of products of one token, as one launch: the products from a mixer to the next one, with the norms and
 * silu_mul between them. */
#ifndef QUERN_BACKENDS_CUDA_MATMUL_CHAIN_H
#define QUERN_BACKENDS_CUDA_MATMUL_CHAIN_H

#include "backends/cuda/joints.h"
#include "backends/cuda/matmul_chain_cuda.h"

/* What kinds of weights differ in. */
struct qrn_chain_form {
    enum qrn_dtype x; /* what rows are rounded to */
    /* Of 128 elements of silu_mul's row, words that blocks exchange: those that come first, of all pieces, and the
     * others. */
    int head_words, piece_words;
    bool (*takes)(const struct qrn_weights_params *w);
};

/* Shared memory: a ring of as many stages as fit beside the longest rows. */
struct qrn_chain_ring {
    int64_t alignment;               /* bytes that are lost to it */
    int64_t stage_bytes, sums_bytes; /* of a stage: weights; sums of its rows */
    int64_t x_bytes, d_bytes;        /* of 128 k of x */
    int64_t least_stages, most_stages;
    /* Bytes that a block has under way: what memory's latency takes, or all that is small waits longer. */
    int64_t window_bytes;
};

/* Whether the steps, as a joint names them, are a chain; p is then what they are, without shares. */
bool qrn_cuda_chain_of_steps(const struct qrn_cuda *cuda, const struct qrn_chain_form *form,
                             const struct qrn_step *steps, size_t n_steps,
                             struct qrn_matmul_chain_params *p);

/* Shares, when links have their group_rows, and shared memory.  False: it does not fit. */
bool qrn_cuda_chain_lay_out(const struct qrn_cuda *cuda, const struct qrn_chain_ring *ring,
                            struct qrn_matmul_chain_params *p, struct qrn_cuda_grid *grid);

/* The joints of a file that has matches(cuda, steps, n_steps) and run(stream, steps, n_steps). */
#define QRN_CHAIN_JOINT(joint, n, ...)                                                     \
    static bool matches_##joint(const struct qrn_cuda *cuda, const struct qrn_step *steps) \
    {                                                                                      \
        return matches(cuda, steps, n);                                                    \
    }                                                                                      \
    static void run_##joint(struct qrn_cuda_stream *s, const struct qrn_step *steps)       \
    {                                                                                      \
        run(s, steps, n);                                                                  \
    }                                                                                      \
    const struct qrn_cuda_joint qrn_cuda_joint_##joint = {                                 \
        .name = #joint,                                                                    \
        .kernels = {__VA_ARGS__},                                                          \
        .n_steps = n,                                                                      \
        .matches = matches_##joint,                                                        \
        .run = run_##joint,                                                                \
    }
#define QRN_CHAIN_JOINTS(name, product)                                                       \
    QRN_CHAIN_JOINT(name##_to_mixer, 7, product, &qrn_cuda_rms_norm_registers, product,       \
                    &qrn_cuda_silu_mul_rows, product, &qrn_cuda_rms_norm_registers, product); \
    QRN_CHAIN_JOINT(name##_to_end, 5, product, &qrn_cuda_rms_norm_registers, product,         \
                    &qrn_cuda_silu_mul_rows, product)

#endif
