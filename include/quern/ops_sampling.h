/* SPDX-License-Identifier: MIT
 * Ops: from logits to tokens.
 * Included by ops.h, which says what holds for all ops. */
#ifndef QUERN_OPS_SAMPLING_H
#define QUERN_OPS_SAMPLING_H

#include <quern/op_functions.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The place of the largest value of each row: the lowest one on ties.  NaN never wins; in a row of
 * nothing else the answer is 0.  Rows of 0 elements are an error. */
struct qrn_argmax_args {
    struct qrn_tensor x;      /* [n_rows, n], n < 2^31 */
    struct qrn_tensor ids;    /* I32 [n_rows] */
    struct qrn_tensor values; /* [n_rows], optional: x at ids */
};
QRN_OP_FUNCTIONS(argmax);

/** The places of the k largest values of each row, descending; ties: the lowest place first.  NaN
 * ranks behind every number, by place. */
struct qrn_top_k_args {
    struct qrn_tensor x;      /* [n_rows, n], n < 2^31 */
    struct qrn_tensor ids;    /* I32 [n_rows, k], 1 <= k <= n */
    struct qrn_tensor values; /* [n_rows, k], optional: x at ids */
};
QRN_OP_FUNCTIONS(top_k);

/**
 * Draws one token.  What is 0 is off.  In this order, which is that of llama.cpp:
 *
 *     penalties    for each token that history holds n times:
 *                  logit = logit > 0 ? logit / repeat_penalty : logit * repeat_penalty
 *                  logit = logit - n * frequency_penalty - presence_penalty
 *     temperature  0: the largest logit, the lowest id on ties; nothing below matters
 *     top_k        keep the k largest; ties: the lowest ids
 *     top_p        keep the fewest, from the largest on, that hold at least top_p of the
 *                  probability of what is kept so far
 *     min_p        keep what is at least min_p as probable as the most probable
 *     temperature  probability = softmax(logit / temperature) over what is kept
 *     draw         the first id, ascending, where the sum of probabilities exceeds u
 *
 * u in [0, 1) is the top 53 bits of the first two words of Philox4x32-10 (Salmon and others, SC11)
 * with key = seed and counter = position, low words first: the same arguments give the same token
 * on every device and with any number of threads, up to the rounding of exp.
 *
 * NaN and -inf are never drawn; where a logit is +inf only such are.  QRN_ERR_ARGUMENT when
 * running: no logit above -inf; a token of history outside 0 .. n_vocab - 1.
 */
struct qrn_sample_args {
    struct qrn_tensor logits;      /* [n_vocab], 1 <= n_vocab < 2^31 */
    struct qrn_tensor history;     /* I32 [n], optional: the tokens that penalties look at */
    struct qrn_tensor id;          /* I32 [1] */
    struct qrn_tensor probability; /* [1], optional: of that token, after all of the above */
    float temperature;             /* >= 0 */
    int32_t top_k;                 /* >= 0; n_vocab and more: off too */
    float top_p;                   /* 0 .. 1; 1: off too */
    float min_p;                   /* 0 .. 1 */
    float repeat_penalty;          /* > 0; 0 and 1: off */
    float presence_penalty;        /* finite */
    float frequency_penalty;       /* finite */
    uint64_t seed;
    uint64_t position; /* of the token that is drawn: another one for each draw */
};
QRN_OP_FUNCTIONS(sample);

#ifdef __cplusplus
}
#endif
#endif
