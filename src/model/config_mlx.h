/* SPDX-License-Identifier: MIT
 * The quantization object of config.json. */
#ifndef QUERN_MODEL_CONFIG_MLX_H
#define QUERN_MODEL_CONFIG_MLX_H

#include "base/json.h"
#include "model/config.h"

/* Reads "quantization" (MLX) or "quantization_config" (MLX, or FP8 of Hugging Face). */
enum qrn_status qrn_config_take_quantization(const struct qrn_json_value *top,
                                             struct qrn_model_config *config,
                                             struct qrn_error *err);

#endif
