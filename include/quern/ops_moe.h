/* SPDX-License-Identifier: MIT
 * Ops: mixture of experts.
 * Included by ops.h, which says what holds for all ops. */
#ifndef QUERN_OPS_MOE_H
#define QUERN_OPS_MOE_H

#include <quern/op_functions.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Chooses the experts of each token.
 *
 *     p       = softmax(logits)                            over all experts, in float32
 *     ids     = the top_k largest logits, descending       equal logits: the lowest id first
 *     weights = p[ids]                                     normalise: divided by their sum
 *
 * NaN ranks behind every number, by id.  A row that holds NaN or +inf, or nothing above -inf, has
 * weights of NaN, as softmax has; its ids are good all the same.
 */
struct qrn_moe_route_args {
    struct qrn_tensor logits;  /* [n_tokens, n_experts] */
    struct qrn_tensor ids;     /* I32 [n_tokens, top_k], 1 <= top_k <= n_experts */
    struct qrn_tensor weights; /* [n_tokens, top_k] */
    bool normalise;
};
QRN_OP_FUNCTIONS(moe_route);

/**
 * What the experts of a token made, added up in the order of their rank, then the shared expert.
 *
 *     out[t] = sum_k weights[t][k] * experts[t][k]  +  sigmoid(shared_gate[t]) * shared[t]
 *
 * Without shared_gate its factor is 1.
 */
struct qrn_moe_combine_args {
    struct qrn_tensor experts;     /* [n_tokens, top_k, d], top_k >= 1 */
    struct qrn_tensor weights;     /* [n_tokens, top_k] */
    struct qrn_tensor shared;      /* [n_tokens, d], optional */
    struct qrn_tensor shared_gate; /* [n_tokens] or [n_tokens, 1], optional; only with shared */
    struct qrn_tensor out;         /* [n_tokens, d]; may be shared */
};
QRN_OP_FUNCTIONS(moe_combine);

#ifdef __cplusplus
}
#endif
#endif
