/* SPDX-License-Identifier: MIT
 * Which type each tensor of a GGUF file gets when a model is quantised: the same choice as
 * llama-quantize's without an importance matrix, for the architectures that quern runs. */
#ifndef QUERN_FORMATS_RECIPE_H
#define QUERN_FORMATS_RECIPE_H

#include <stdbool.h>
#include <quern/dtype.h>

/* A target: one type for nearly all tensors ("Q8_0"), or a mixture ("Q4_K_M"). */
struct qrn_recipe_target {
    const char *name;
    int32_t file_type;   /* what general.file_type says */
    enum qrn_dtype base; /* the type of most tensors, and of all with pure */
};

/* The i-th target, in the order a list should show them; NULL past the end. */
const struct qrn_recipe_target *qrn_recipe_at(size_t i);

/* The target of that name, case-insensitive; also Q3_K, Q4_K and Q5_K for their _M mixtures and
 * MXFP4 for MXFP4_MOE.  NULL if there is none. */
const struct qrn_recipe_target *qrn_recipe_find(const char *name);

struct qrn_recipe_model {
    int n_layers;  /* block_count: prediction layers included */
    int n_experts; /* 0 or 1: dense */
    int n_heads, n_kv_heads;
};

struct qrn_recipe_tensor {
    const char *name; /* as in GGUF: "blk.0.attn_qkv.weight" */
    int n_dims;
    const int64_t *shape; /* outermost first */
};

/* Writes the type of each of the model's tensors, all of which must be given, in any order: rules
 * count them.  pure: every matrix the base type.  Norms, biases, convolutions, routers and all that
 * is one-dimensional stay QRN_F32; a type whose blocks do not divide the rows gives way to a
 * related one of smaller blocks, or to QRN_F16.
 * Errors: QRN_ERR_ARGUMENT (a layer number out of range), QRN_ERR_UNSUPPORTED (no type to give way
 * to); dtypes is then unspecified. */
enum qrn_status qrn_recipe_plan(const struct qrn_recipe_target *target, bool pure,
                                const struct qrn_recipe_model *model,
                                const struct qrn_recipe_tensor *tensors, size_t n_tensors,
                                enum qrn_dtype *dtypes, struct qrn_error *err);

/* Whether a tensor is quantised at all.  llama-quantize leaves the others as they are in the file that
 * it reads; its converter makes them float32. */
bool qrn_recipe_quantises(const struct qrn_recipe_tensor *tensor);

/* The order in which llama-quantize writes tensors: those of no layer, then layer by layer; by name
 * within.  Negative, zero or positive as strcmp(). */
int qrn_recipe_order(const char *a, const char *b);

#endif
