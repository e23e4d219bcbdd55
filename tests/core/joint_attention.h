/* SPDX-License-Identifier: MIT
 * Steps that joints of attention begin with: norms and rope of queries and keys, keys and values into pages. */
#ifndef QUERN_TESTS_JOINT_ATTENTION_H
#define QUERN_TESTS_JOINT_ATTENTION_H

#include "support/joint_test.h"

struct attention_rows_call {
    struct qrn_rms_norm_args q_norm, k_norm;
    struct qrn_rope_args q_rope, k_rope;
    struct qrn_kv_append_paged_args append;
};

static inline void record_attention_rows(struct joint_test *j, const struct attention_rows_call *c)
{
    qrn_encode_rms_norm(j->enc, &c->q_norm);
    qrn_encode_rms_norm(j->enc, &c->k_norm);
    qrn_encode_rope(j->enc, &c->q_rope);
    qrn_encode_rope(j->enc, &c->k_rope);
    qrn_encode_kv_append_paged(j->enc, &c->append);
}

#endif
