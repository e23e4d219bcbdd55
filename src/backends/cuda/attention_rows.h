/* SPDX-License-Identifier: MIT
 * Steps that norm and turn queries and keys and put keys and values into pages, for joints that begin with them. */
#ifndef QUERN_BACKENDS_CUDA_ATTENTION_ROWS_H
#define QUERN_BACKENDS_CUDA_ATTENTION_ROWS_H

#include "backends/cuda/attention_rows_cuda.h"
#include "backends/cuda/launch.h"

/* The steps' arguments. */
struct qrn_attention_rows_run {
    const struct qrn_rms_norm_args *q_norm, *k_norm;
    const struct qrn_rope_args *q_rope, *k_rope;
    const struct qrn_kv_append_paged_args *append;
};

enum { QRN_ATTENTION_ROWS_STEPS = 5 };

struct qrn_attention_rows_run qrn_cuda_attention_rows_run(const struct qrn_step *steps);

/* Whether their arguments fit together; qrn_cuda_are_joined is to be asked, q_norm->x and k_norm->x passed on. */
bool qrn_cuda_attention_rows_match(const struct qrn_attention_rows_run *run);

struct qrn_attention_rows_params
qrn_cuda_attention_rows_params(const struct qrn_cuda_stream *s,
                               const struct qrn_attention_rows_run *run);

#endif
