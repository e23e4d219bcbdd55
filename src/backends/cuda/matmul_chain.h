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
    int64_t more_bytes; /* of a chain's own, behind all else: a multiple of 16 */
};

/* One row of n elements in whole fours; an absent one too. */
bool qrn_cuda_chain_is_row(const struct qrn_tensor *t, int64_t n);
/* Element of made at which n elements of t begin, a multiple of 4; -1: they are not there. */
int64_t qrn_cuda_chain_place_in(const struct qrn_tensor *t, int64_t n,
                                const struct qrn_tensor *made);
/* A product of one row, without its row and share. */
bool qrn_cuda_chain_link_of(const struct qrn_matmul_args *a, const struct qrn_chain_form *form,
                            struct qrn_chain_link *l);
/* The row of n elements that is the norm of what a step before has made. */
bool qrn_cuda_chain_norm_row(const struct qrn_rms_norm_args *a, const struct qrn_tensor *made,
                             enum qrn_dtype x, int64_t n, struct qrn_chain_row *row);
/* Whether t is apart from all that the steps write. */
bool qrn_cuda_chain_stays(const struct qrn_tensor *t, const struct qrn_step *steps, size_t n_steps);

/* Where a chain notes the address of what a step writes; 0: it is not stored. */
struct qrn_chain_store {
    size_t step;
    uint64_t *at;
};
/* Leaves out what is written again: what is left is written once, and in any order.  False: a part of something is. */
bool qrn_cuda_chain_drop_early(const struct qrn_step *steps, size_t n_steps,
                               const struct qrn_chain_store *stores, size_t n_stores);

/* Where links exchange words, and n_more others; false: there are too many. */
bool qrn_cuda_chain_place_words(const struct qrn_cuda *cuda, const struct qrn_chain_form *form,
                                int64_t n_more, struct qrn_matmul_chain_params *p);

/* Whether the steps, as a joint names them, are a chain, whose products are those of even numbers; p is then what they
 * are, without shares. */
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
