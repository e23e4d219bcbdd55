/* SPDX-License-Identifier: MIT
 * The quantization object of config.json: MLX's defaults and exceptions by path, or FP8. */
#include "model/config_mlx.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/memory.h"
#include "base/quote.h"

typedef const struct qrn_json_value json;

static const struct {
    const char *name;
    int group_size, bits; /* where the file does not say */
} modes[] = {
    [QRN_MLX_AFFINE] = {"affine", 64, 4},
    [QRN_MLX_MXFP4] = {"mxfp4", 32, 4},
    [QRN_MLX_NVFP4] = {"nvfp4", 16, 4},
    [QRN_MLX_MXFP8] = {"mxfp8", 32, 8},
};

static enum qrn_status take_mode(json *object, const char *where, enum qrn_mlx_mode *out,
                                 struct qrn_error *err)
{
    json *mode = qrn_json_member(object, "mode");
    *out = QRN_MLX_AFFINE;
    if (!mode || mode->type == QRN_JSON_NULL) return QRN_OK;
    if (mode->type != QRN_JSON_STRING)
        return qrn_fail(err, QRN_ERR_FORMAT, "%s: mode is not a string", where);
    const char *name = mode->as.string;
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (strcmp(name, modes[i].name) == 0) {
            *out = (enum qrn_mlx_mode)i;
            return QRN_OK;
        }
    return qrn_fail(err, QRN_ERR_UNSUPPORTED, "%s: quantization mode %s is not known", where,
                    qrn_quote(name, strlen(name)).text);
}

static enum qrn_status take_small(json *object, const char *key, const char *where, int absent,
                                  int *out, struct qrn_error *err)
{
    json *value = qrn_json_member(object, key);
    *out = absent;
    if (!value || value->type == QRN_JSON_NULL) return QRN_OK;
    if (value->type != QRN_JSON_INTEGER || value->as.integer < 1 || value->as.integer > 4096)
        return qrn_fail(err, QRN_ERR_FORMAT, "%s: %s is not an integer from 1 to 4096", where, key);
    *out = (int)value->as.integer;
    return QRN_OK;
}

static enum qrn_status take_quant(json *object, const char *where, struct qrn_mlx_quant *q,
                                  struct qrn_error *err)
{
    QRN_TRY(take_mode(object, where, &q->mode, err));
    QRN_TRY(
        take_small(object, "group_size", where, modes[q->mode].group_size, &q->group_size, err));
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
static enum qrn_status take_override(const char *path, json *value,
                                     const struct qrn_model_config *c, struct qrn_mlx_quant *q,
                                     struct qrn_error *err)
{
    const struct qrn_quoted quoted = qrn_quote(path, strlen(path));
    const bool as_others = value->type == QRN_JSON_BOOL && value->as.boolean;
    *q = as_others ? c->mlx : (struct qrn_mlx_quant){0};
    if (value->type == QRN_JSON_BOOL || value->type == QRN_JSON_NULL) return QRN_OK;
    if (value->type != QRN_JSON_OBJECT)
        return qrn_fail(err, QRN_ERR_FORMAT,
                        "quantization: the value of %s is not an object or false", quoted.text);
    return take_quant(value, quoted.text, q, err);
}

static enum qrn_status take_mlx(json *object, struct qrn_model_config *c, struct qrn_error *err)
{
    QRN_TRY(take_quant(object, "quantization", &c->mlx, err));
    c->quant = QRN_QUANT_MLX;
    size_t n = 0;
    json *key = object + 1;
    for (uint32_t i = 0; i < object->n; i++, key = qrn_json_next(key + 1))
        n += !is_setting(key->as.string);
    c->overrides = qrn_alloc_zeroed(&c->allocator, n * sizeof *c->overrides);
    if (!c->overrides) return qrn_fail_memory(err, n * sizeof *c->overrides, "quantization");
    c->n_overrides = n;
    struct qrn_mlx_override *o = c->overrides;
    key = object + 1;
    for (uint32_t i = 0; i < object->n; i++, key = qrn_json_next(key + 1)) {
        if (is_setting(key->as.string)) continue;
        o->path = qrn_strdup(&c->allocator, key->as.string);
        if (!o->path) return qrn_fail_memory(err, key->n, "quantization");
        QRN_TRY(take_override(key->as.string, key + 1, c, &o->quant, err));
        o++;
    }
    if (n > 1) qsort(c->overrides, n, sizeof *c->overrides, compare_paths);
    return QRN_OK;
}

static enum qrn_status take_fp8(json *object, struct qrn_model_config *c, struct qrn_error *err)
{
    json *tile = qrn_json_member(object, "weight_block_size");
    const bool ok = qrn_json_is(tile, QRN_JSON_ARRAY) && tile->n == 2 &&
                    tile[1].type == QRN_JSON_INTEGER && tile[2].type == QRN_JSON_INTEGER;
    const int64_t rows = ok ? tile[1].as.integer : 0, cols = ok ? tile[2].as.integer : 0;
    if (rows < 1 || rows > 1 << 20 || cols < 1 || cols > 1 << 20)
        return qrn_fail(err, QRN_ERR_UNSUPPORTED,
                        "fp8 weights without a weight_block_size of two sizes");
    c->quant = QRN_QUANT_FP8;
    c->fp8_rows = rows;
    c->fp8_cols = cols;
    return QRN_OK;
}

enum qrn_status qrn_config_take_quantization(json *top, struct qrn_model_config *c,
                                             struct qrn_error *err)
{
    json *object = qrn_json_member(top, "quantization");
    if (!object || object->type == QRN_JSON_NULL)
        object = qrn_json_member(top, "quantization_config");
    if (!object || object->type == QRN_JSON_NULL) return QRN_OK;
    if (object->type != QRN_JSON_OBJECT)
        return qrn_fail(err, QRN_ERR_FORMAT, "quantization is not an object");
    json *method = qrn_json_member(object, "quant_method");
    if (!method) return take_mlx(object, c, err);
    if (method->type != QRN_JSON_STRING)
        return qrn_fail(err, QRN_ERR_FORMAT, "quant_method is not a string");
    if (strcmp(method->as.string, "fp8") == 0) return take_fp8(object, c, err);
    return qrn_fail(err, QRN_ERR_UNSUPPORTED, "quant_method %s is not supported",
                    qrn_quote(method->as.string, method->n).text);
}

enum qrn_dtype qrn_mlx_type(int64_t words, int64_t n)
{
    static const struct {
        int bits;
        enum qrn_dtype dtype;
    } types[] = {{2, QRN_MLX_Q2}, {3, QRN_MLX_Q3}, {4, QRN_MLX_Q4},
                 {5, QRN_MLX_Q5}, {6, QRN_MLX_Q6}, {8, QRN_MLX_Q8}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (words == n / 32 * types[i].bits && n % 32 == 0) return types[i].dtype;
    return QRN_DTYPE_COUNT;
}
