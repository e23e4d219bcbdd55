/* SPDX-License-Identifier: MIT
 * What a model takes of its devices' memory, and whether that is there. */
#ifndef QUERN_MODEL_FIT_H
#define QUERN_MODEL_FIT_H

#include "model/model_impl.h"

/* Bytes on the device of the last layers, as far as the model is there at all. */
struct qrn_fit {
    int64_t n_layers;        /* there, of the last ones */
    size_t weights, buffers; /* of them, and of a step */
    size_t sequence;         /* and of one short sequence */
    size_t n_free, n_total;  /* 0: cannot be told */
    int64_t n_layers_fit;    /* that would fit */
    size_t all_buffers;      /* of both devices */
};

/* The sizes of sequences, in each stage and together. */
enum qrn_status qrn_model_measure_sequences(struct qrn_model *model, struct qrn_error *err);

/* After the weights were measured. */
enum qrn_status qrn_model_measure_fit(const struct qrn_model *model, struct qrn_fit *out,
                                      struct qrn_error *err);

/* The host's memory is the system's business; a device that has too little is refused before anything
 * is read.  Errors: QRN_ERR_MEMORY. */
enum qrn_status qrn_model_check_fit(const struct qrn_model *model, const struct qrn_fit *fit,
                                    struct qrn_error *err);

#endif
