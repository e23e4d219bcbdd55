/* SPDX-License-Identifier: MIT
 * The weights of a model in the one form that forward.c reads, whatever file they came from. */
#ifndef QUERN_MODEL_WEIGHTS_H
#define QUERN_MODEL_WEIGHTS_H

#include <quern/model.h>
#include <quern/ops.h>
#include "model/files.h"
#include "model/stage.h"

/* A weight of a matrix product: [n_out, n_in], or [n_experts, n_out, n_in]. */
struct qrn_matrix {
    struct qrn_tensor w, scales, biases; /* the last two: of MLX codes in rows */
    enum qrn_weight_layout layout;
    enum qrn_activation_type activation, many; /* many: of calls with many tokens */
};

struct qrn_linear_weights { /* a Gated DeltaNet layer */
    struct qrn_matrix qkv, z, b, a, out;
    struct qrn_tensor conv;             /* [n_conv, conv_kernel] */
    struct qrn_tensor a_scale, dt_bias; /* [n_v_heads]; a_scale = -exp(A_log) */
    struct qrn_tensor norm;             /* [d_v] */
};

struct qrn_attention_weights {
    struct qrn_matrix q, k, v, out;   /* q: per head [query | gate] */
    struct qrn_tensor q_norm, k_norm; /* [head_dim] */
};

struct qrn_mlp_weights {
    struct qrn_matrix gate, up, down; /* dense, or the shared expert */
};

struct qrn_moe_weights {
    struct qrn_matrix router, shared_gate; /* [n_experts, d_model], [1, d_model] */
    struct qrn_matrix gate, up, down;      /* by expert */
};

struct qrn_layer_weights {
    bool is_linear, is_moe;
    size_t before; /* bytes of its device's memory that the layers before it take there */
    struct qrn_tensor mixer_norm, mlp_norm; /* [d_model]; 1 + w is already added where it must be */
    struct qrn_linear_weights linear;
    struct qrn_attention_weights attention;
    struct qrn_mlp_weights mlp; /* d_ff wide, or the shared expert's d_ff_shared */
    struct qrn_moe_weights moe;
};

struct qrn_weights {
    struct qrn_matrix embedding; /* rows [vocab_size, d_model] */
    struct qrn_matrix head;      /* the same numbers when tied */
    struct qrn_tensor norm;
    struct qrn_layer_weights *layers;
    int64_t n_layers;
    enum qrn_head_map head_map;
    struct qrn_buffer *memory[QRN_MAX_STAGES]; /* behind all of the above that is not the files' */
    size_t n_memory[QRN_MAX_STAGES];           /* bytes of it */
    size_t of_layers, of_embedding;            /* bytes of the last stage's */
    int64_t n_parameters;
    size_t n_bytes;         /* of matrices as they lie in memory, and vectors */
    uint64_t dtypes;        /* bit t: a matrix of type t is used */
    size_t bytes_per_token; /* read by a decode step */
    struct qrn_allocator allocator;
};

struct qrn_load_options {
    const struct qrn_stage *stages; /* one or more */
    int n_stages;
    bool exact;
    qrn_progress_fn progress;
    void *progress_user;
};

/* Finds and checks all weights: shapes, types and sizes are filled in, no tensor has data.  Errors: as
 * qrn_model_open.  The weights are to be freed in any case. */
enum qrn_status qrn_weights_measure(const struct qrn_model_files *files,
                                    const struct qrn_load_options *options,
                                    const struct qrn_host *host, struct qrn_weights *weights,
                                    struct qrn_error *err);
/* Takes memory for weights that were measured and prepares them; files stay open as long as they live. */
enum qrn_status qrn_weights_load(const struct qrn_model_files *files,
                                 const struct qrn_load_options *options,
                                 struct qrn_weights *weights, struct qrn_error *err);
void qrn_weights_free(struct qrn_weights *weights); /* zeroed structs are allowed */

#endif
