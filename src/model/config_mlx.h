/* SPDX-License-Identifier: MIT
 * What MLX says of quantised weights: the quantization object of config.json, the types of codes. */
#ifndef QUERN_MODEL_CONFIG_MLX_H
#define QUERN_MODEL_CONFIG_MLX_H

#include <quern/dtype.h>

#include "base/json.h"
#include "model/config.h"

/* Reads "quantization" (MLX) or "quantization_config" (MLX, or FP8 of Hugging Face). */
enum qrn_status qrn_config_take_quantization(const struct qrn_json_value *top,
                                             struct qrn_model_config *config,
                                             struct qrn_error *err);

/* The type of codes, from how many words a row of n values takes; QRN_DTYPE_COUNT: none. */
enum qrn_dtype qrn_mlx_type(int64_t words, int64_t n);

#endif
