/* SPDX-License-Identifier: MIT
 * The quantization object of config.json: MLX's defaults and exceptions by path, or FP8. */
#include "model/config_mlx.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/memory.h"
#include "formats/quote.h"

static const struct {
    const char *name;
    int group_size, bits; /* where the file does not say */
} modes[] = {
    [QRN_MLX_AFFINE] = {"affine", 64, 4},
    [QRN_MLX_MXFP4] = {"mxfp4", 32, 4},
    [QRN_MLX_NVFP4] = {"nvfp4", 16, 4},
    [QRN_MLX_MXFP8] = {"mxfp8", 32, 8},
};

static enum qrn_status take_mode(json_t *object, const char *where, enum qrn_mlx_mode *out,
                                 struct qrn_error *err)
{
    json_t *mode = json_object_get(object, "mode");
    *out = QRN_MLX_AFFINE;
    if (!mode || json_is_null(mode)) return QRN_OK;
    if (!json_is_string(mode))
        return qrn_fail(err, QRN_ERR_FORMAT, "%s: mode is not a string", where);
    const char *name = json_string_value(mode);
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (strcmp(name, modes[i].name) == 0) {
            *out = (enum qrn_mlx_mode)i;
            return QRN_OK;
        }
    return qrn_fail(err, QRN_ERR_UNSUPPORTED, "%s: quantization mode %s is not known", where,
                    qrn_quote(name, strlen(name)).text);
}

static enum qrn_status take_small(json_t *object, const char *key, const char *where, int absent,
                                  int *out, struct qrn_error *err)
{
    json_t *value = json_object_get(object, key);
    *out = absent;
    if (!value || json_is_null(value)) return QRN_OK;
    if (!json_is_integer(value) || json_integer_value(value) < 1 || json_integer_value(value) > 4096)
        return qrn_fail(err, QRN_ERR_FORMAT, "%s: %s is not an integer from 1 to 4096", where, key);
    *out = (int)json_integer_value(value);
    return QRN_OK;
}

static enum qrn_status take_quant(json_t *object, const char *where, struct qrn_mlx_quant *q,
                                  struct qrn_error *err)
{
    QRN_TRY(take_mode(object, where, &q->mode, err));
    QRN_TRY(take_small(object, "group_size", where, modes[q->mode].group_size, &q->group_size, err));
    QRN_TRY(take_small(object, "bits", where, modes[q->mode].bits, &q->bits, err));
    const int g = q->group_size, b = q->bits;
    const bool known = q->mode == QRN_MLX_AFFINE
                           ? (g == 32 || g == 64 || g == 128) && b >= 2 && b <= 8 && b != 7
                           : g == modes[q->mode].group_size && b == modes[q->mode].bits;
    if (!known)
        return qrn_fail(err, QRN_ERR_UNSUPPORTED, "%s: %s quantization of %d bits in groups of %d",
                        where, modes[q->mode].name, b, g);
    return QRN_OK;
}

static bool is_setting(const char *key)
{
    static const char *const settings[] = {"group_size", "bits", "mode", "quant_method"};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        if (strcmp(key, settings[i]) == 0) return true;
    return false;
}

static int compare_paths(const void *a, const void *b)
{
    return strcmp(((const struct qrn_mlx_override *)a)->path,
                  ((const struct qrn_mlx_override *)b)->path);
}

/* A module's own setting: an object, true (as all others) or false (not quantised). */
static enum qrn_status take_override(const char *path, json_t *value,
                                     const struct qrn_model_config *c, struct qrn_mlx_quant *q,
                                     struct qrn_error *err)
{
    const struct qrn_quoted quoted = qrn_quote(path, strlen(path));
    *q = json_is_true(value) ? c->mlx : (struct qrn_mlx_quant){0};
    if (json_is_boolean(value) || json_is_null(value)) return QRN_OK;
    if (!json_is_object(value))
        return qrn_fail(err, QRN_ERR_FORMAT, "quantization: the value of %s is not an object or false",
                        quoted.text);
    return take_quant(value, quoted.text, q, err);
}

static enum qrn_status take_mlx(json_t *object, struct qrn_model_config *c, struct qrn_error *err)
{
    QRN_TRY(take_quant(object, "quantization", &c->mlx, err));
    c->quant = QRN_QUANT_MLX;
    size_t n = 0;
    const char *key;
    json_t *value;
    json_object_foreach (object, key, value) n += !is_setting(key);
    c->overrides = qrn_alloc_zeroed(&c->allocator, n * sizeof *c->overrides);
    if (!c->overrides) return qrn_fail_memory(err, n * sizeof *c->overrides, "quantization");
    c->n_overrides = n;
    size_t i = 0;
    json_object_foreach (object, key, value) {
        if (is_setting(key)) continue;
        c->overrides[i].path = qrn_strdup(&c->allocator, key);
        if (!c->overrides[i].path) return qrn_fail_memory(err, strlen(key), "quantization");
        QRN_TRY(take_override(key, value, c, &c->overrides[i].quant, err));
        i++;
    }
    if (n > 1) qsort(c->overrides, n, sizeof *c->overrides, compare_paths);
    return QRN_OK;
}

static enum qrn_status take_fp8(json_t *object, struct qrn_model_config *c, struct qrn_error *err)
{
    json_t *tile = json_object_get(object, "weight_block_size");
    json_t *rows = json_array_get(tile, 0), *cols = json_array_get(tile, 1);
    if (json_array_size(tile) != 2 || !json_is_integer(rows) || !json_is_integer(cols) ||
        json_integer_value(rows) < 1 || json_integer_value(rows) > 1 << 20 ||
        json_integer_value(cols) < 1 || json_integer_value(cols) > 1 << 20)
        return qrn_fail(err, QRN_ERR_UNSUPPORTED,
                        "fp8 weights without a weight_block_size of two sizes");
    c->quant = QRN_QUANT_FP8;
    c->fp8_rows = (int64_t)json_integer_value(rows);
    c->fp8_cols = (int64_t)json_integer_value(cols);
    return QRN_OK;
}

enum qrn_status qrn_config_take_quantization(json_t *top, struct qrn_model_config *c,
                                             struct qrn_error *err)
{
    json_t *object = json_object_get(top, "quantization");
    if (!object || json_is_null(object)) object = json_object_get(top, "quantization_config");
    if (!object || json_is_null(object)) return QRN_OK;
    if (!json_is_object(object))
        return qrn_fail(err, QRN_ERR_FORMAT, "quantization is not an object");
    json_t *method = json_object_get(object, "quant_method");
    if (!method) return take_mlx(object, c, err);
    if (!json_is_string(method))
        return qrn_fail(err, QRN_ERR_FORMAT, "quant_method is not a string");
    if (strcmp(json_string_value(method), "fp8") == 0) return take_fp8(object, c, err);
    return qrn_fail(err, QRN_ERR_UNSUPPORTED, "quant_method %s is not supported",
                    qrn_quote(json_string_value(method), json_string_length(method)).text);
}
