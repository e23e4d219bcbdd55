/* SPDX-License-Identifier: MIT
 * Inside a model: weights, the buffers of a step, and what its sequences are made of. */
#ifndef QUERN_MODEL_IMPL_H
#define QUERN_MODEL_IMPL_H

#include <pthread.h>
#include <quern/model.h>
#include "model/files.h"
#include "model/weights.h"
#include "model/workspace.h"

#define QRN_CHUNK 64 /* tokens of a chunk of the gated delta rule, and of a KV page */

/* Bytes of what a sequence holds, all layers together. */
struct qrn_seq_sizes {
    size_t state, state_layer; /* S0 */
    size_t rows, rows_layer;   /* open rows of a chunk */
    size_t history_row;        /* one position of one layer */
    size_t page, page_layer;   /* 64 positions of keys and values */
    int64_t n_linear, n_attention;
};

struct qrn_model {
    struct qrn_device *device;
    struct qrn_host host;
    struct qrn_model_files files;
    struct qrn_weights weights;
    struct qrn_seq_sizes sizes;
    struct qrn_model_info info;
    char *bits;
    enum qrn_dtype kv_dtype;
    int64_t max_context, max_batch;
    bool only_info, direct;
    bool rounds_many; /* many tokens worked on at once may be rounded to bf16 */
    bool takes_bf16;  /* products with activations in bf16 want them so, rather than round */
    struct qrn_pool *pool; /* states, rows, histories, pages */
    pthread_mutex_t lock;  /* of steps: the workspace and the recording */
    struct qrn_workspace work;
};

/* A number that changes with the config or the weights: names, types, shapes and samples of all
 * tensors.  For saved sequences. */
uint64_t qrn_model_hash(const struct qrn_model *model);

/* Records a step of one token, which tells whether the device has kernels for all of it.  Errors:
 * QRN_ERR_UNSUPPORTED, QRN_ERR_MEMORY. */
enum qrn_status qrn_model_check_kernels(struct qrn_model *model, struct qrn_error *err);

#endif
