/* SPDX-License-Identifier: MIT
 * What the readers of config.json and of GGUF metadata share. */
#ifndef QUERN_MODEL_CONFIG_CHECK_H
#define QUERN_MODEL_CONFIG_CHECK_H

#include "model/config.h"

/* Ranges of all numbers, and which must divide which.  Errors: QRN_ERR_FORMAT. */
enum qrn_status qrn_config_check(const struct qrn_model_config *config, struct qrn_error *err);

/* Adds an end token, once. */
enum qrn_status qrn_config_add_eos(struct qrn_model_config *config, int64_t id,
                                   struct qrn_error *err);

/* Sets n_layers and makes layer_is_linear: every interval-th layer is an attention layer. */
enum qrn_status qrn_config_layers(struct qrn_model_config *config, int64_t n_layers,
                                  int64_t interval, struct qrn_error *err);

/* What YaRN multiplies cos and sin by: 0.1 mscale ln(factor) + 1. */
double qrn_config_yarn_mscale(double factor, double mscale);

#endif
