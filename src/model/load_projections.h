/* SPDX-License-Identifier: MIT
 * Weights that formats cut in different ways: the input projections of linear layers, experts. */
#ifndef QUERN_MODEL_LOAD_PROJECTIONS_H
#define QUERN_MODEL_LOAD_PROJECTIONS_H

#include "model/load.h"

/* Names in a layer.  Where the tensor called qkvz (or ba) exists it holds both, grouped by key head,
 * else there is one tensor for each. */
struct projection_names {
    const char *qkvz, *qkv, *z, *ba, *b, *a, *dt_bias, *dt_bias_other;
};
enum qrn_status qrn_load_linear_projections(struct loader *ld, int64_t i_layer,
                                            const struct projection_names *names,
                                            struct qrn_linear_weights *l);

/* Tensors that hold all experts; where the one called gate_up exists it holds both. */
struct expert_names {
    const char *gate_up, *gate, *up, *down;
};
enum qrn_status qrn_load_stacked_experts(struct loader *ld, int64_t i_layer,
                                         const struct expert_names *names,
                                         struct qrn_moe_weights *m);
enum qrn_status qrn_load_separate_experts(struct loader *ld, int64_t i_layer,
                                          struct qrn_moe_weights *m);

#endif
