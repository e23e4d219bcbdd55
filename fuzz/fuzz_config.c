/* SPDX-License-Identifier: MIT
 * Fuzz target: config.json, then (behind a NUL byte, if there is one) generation_config.json. */
#include <stdlib.h>
#include <string.h>
#include "model/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data, *end = size ? memchr(text, '\0', size) : NULL;
    const size_t n = end ? (size_t)(end - text) : size;
    struct qrn_model_config config;
    struct qrn_error err = {0};
    if (qrn_config_from_hf(text, n, end ? end + 1 : NULL, end ? size - n - 1 : 0, NULL, &config,
                           &err) == QRN_OK) {
        (void)qrn_config_mlx_quant(&config, "model.layers.0.mlp.gate");
        qrn_config_free(&config);
    } else if (!err.text[0]) {
        abort();
    }
    return 0;
}
