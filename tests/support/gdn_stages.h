/* SPDX-License-Identifier: MIT
 * The chunk stages of the gated delta rule as one set of calls, for the test of each. */
#ifndef QUERN_TESTS_GDN_STAGES_H
#define QUERN_TESTS_GDN_STAGES_H

#include "support/op_test.h"

enum stages_decay { STAGES_MILD, STAGES_STRONG, STAGES_ABYSS }; /* g to -0.1; to -5; one of -316 */

struct stages_case {
    int64_t n_tokens, n_seqs; /* n_seqs 0: one sequence, seq_begin absent */
    int64_t n_k_heads, n_v_heads, d_k, d_v;
    enum qrn_dtype type, G_type;
    enum qrn_head_map map;
    enum stages_decay decay;
    const char *why;
};

struct stages {
    int32_t *seq_begin; /* 8 */
    struct qrn_tensor q, k, v, g, beta, state_in, state_out, out;
    struct qrn_gdn_cumsum_args cumsum;
    struct qrn_gdn_kkt_args kkt;
    struct qrn_gdn_solve_args solve;
    struct qrn_gdn_recompute_wu_args wu;
    struct qrn_gdn_chunk_state_args state;
    struct qrn_gdn_chunk_out_args chunk_out;
};

extern const struct stages_case stages_cases[];
extern const size_t n_stages_cases;

/* Inputs of a case, scaled so that |out| is about 1, and memory for all that the stages write. */
void stages_make(struct stages *s, struct mem *m, const struct stages_case *c, uint64_t seed);
/* The six of them in order. */
void stages_run(struct stages *s, struct qrn_device *dev);
/* For each case: pipeline, then the op, whose arguments are at offset in struct stages, against its
 * reference with every kernel of every device, and the same bits with any threads. */
void stages_test(enum qrn_op_id op, size_t offset, double tolerance_f32, double tolerance_bf16);

#endif
