/* SPDX-License-Identifier: MIT
 * quern info --json, and names and sums that both forms of it show. */
#include "info_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json_out.h"
#include "report.h"

const char *gguf_type_name(enum qrn_gguf_type type)
{
    static const char *const names[] = {
        [QRN_GGUF_U8] = "u8",   [QRN_GGUF_I8] = "i8",         [QRN_GGUF_U16] = "u16",
        [QRN_GGUF_I16] = "i16", [QRN_GGUF_U32] = "u32",       [QRN_GGUF_I32] = "i32",
        [QRN_GGUF_F32] = "f32", [QRN_GGUF_BOOL] = "bool",     [QRN_GGUF_STRING] = "string",
        [QRN_GGUF_U64] = "u64", [QRN_GGUF_ARRAY] = "array",   [QRN_GGUF_I64] = "i64",
        [QRN_GGUF_F64] = "f64",
    };
    return type < QRN_GGUF_TYPE_COUNT ? names[type] : "unknown";
}

double sequence_state_bytes(const struct qrn_model_info *m)
{
    return (double)m->state_bytes + (double)m->rows_bytes +
           (double)m->history_bytes_per_row * (double)(m->conv_kernel > 0 ? m->conv_kernel - 1 : 0);
}

/* Bytes of a file that ought to be UTF-8. */
static json_t *text_json(const char *bytes, size_t n)
{
    json_t *text = json_stringn(bytes ? bytes : "", n);
    return text ? text : json_string("(not UTF-8)");
}

static json_t *value_json(const struct qrn_gguf_value *v)
{
    switch (v->type) {
    case QRN_GGUF_STRING: return text_json(v->as.string.bytes, v->as.string.n_bytes);
    case QRN_GGUF_BOOL: return json_boolean(v->as.u);
    case QRN_GGUF_F32:
    case QRN_GGUF_F64: {
        json_t *number = json_real(v->as.f);
        return number ? number : json_null(); /* NaN and infinity */
    }
    case QRN_GGUF_ARRAY:
        return json_pack("{s:s, s:I}", "array_of", gguf_type_name(v->element), "n",
                         (json_int_t)v->as.array.n);
    case QRN_GGUF_I8:
    case QRN_GGUF_I16:
    case QRN_GGUF_I32:
    case QRN_GGUF_I64: return json_integer(v->as.i);
    default: return json_integer((json_int_t)v->as.u);
    }
}

static json_t *metadata_json(const struct qrn_gguf *gguf)
{
    json_t *out = json_object();
    for (size_t i = 0; i < gguf->n_values; i++) {
        const struct qrn_span key = gguf->values[i].key;
        char name[256];
        if (key.n_bytes >= sizeof name) continue;
        snprintf(name, sizeof name, "%.*s", (int)key.n_bytes, key.bytes);
        json_object_set_new(out, name, value_json(&gguf->values[i]));
    }
    return out;
}

static json_t *types_json(const struct listing *l)
{
    size_t n = 0;
    struct type_total *totals = listing_types(l, &n);
    json_t *out = totals ? json_array() : NULL;
    for (size_t i = 0; i < n; i++)
        json_array_append_new(out, json_pack("{s:s, s:I, s:I, s:I}", "type", totals[i].name,
                                             "tensors", (json_int_t)totals[i].n_tensors,
                                             "elements", (json_int_t)totals[i].n_elements, "bytes",
                                             (json_int_t)totals[i].n_bytes));
    free(totals);
    return out;
}

static json_t *tensors_json(const struct qrn_archive *archive)
{
    json_t *out = json_array();
    for (size_t i = 0; i < archive->n_tensors; i++) {
        const struct qrn_archive_tensor *t = &archive->tensors[i];
        json_t *shape = json_array();
        for (int d = 0; d < t->n_dims; d++) json_array_append_new(shape, json_integer(t->shape[d]));
        json_t *row = json_pack("{s:s, s:o, s:I, s:i}", "type", t->type_name, "shape", shape,
                                "bytes", (json_int_t)t->n_bytes, "file", t->i_file);
        json_object_set_new(row, "name", text_json(t->name, strlen(t->name)));
        json_array_append_new(out, row);
    }
    return out;
}

static json_t *model_json(const struct qrn_model_info *m)
{
    json_t *out = json_pack("{s:s, s:s, s:s}", "architecture", m->architecture, "format", m->format,
                            "bits", m->bits);
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {
#define NUMBER(field) {#field, (int64_t)m->field}
        NUMBER(n_parameters), NUMBER(n_layers), NUMBER(n_attention_layers), NUMBER(d_model),
        NUMBER(vocab_size), NUMBER(context_length), NUMBER(n_heads), NUMBER(n_kv_heads),
        NUMBER(head_dim), NUMBER(n_k_heads), NUMBER(n_v_heads), NUMBER(d_k), NUMBER(d_v),
        NUMBER(conv_kernel), NUMBER(d_ff), NUMBER(n_experts), NUMBER(n_experts_used),
        NUMBER(weight_bytes), NUMBER(read_bytes_per_token), NUMBER(work_bytes), NUMBER(state_bytes),
        NUMBER(rows_bytes), NUMBER(history_bytes_per_row), NUMBER(kv_bytes_per_token),
#undef NUMBER
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        json_object_set_new(out, numbers[i].name, json_integer(numbers[i].value));
    return out;
}

static json_t *devices_json(const struct device_fit *fits, size_t n)
{
    json_t *out = json_array();
    for (size_t i = 0; i < n; i++) {
        const struct device_fit *f = &fits[i];
        json_t *row =
            json_pack("{s:s, s:s, s:b, s:I, s:I, s:I, s:I, s:I}", "name", f->name, "model", f->model,
                      "fits", f->fits, "needed_bytes", (json_int_t)f->n_needed, "free_bytes",
                      (json_int_t)f->n_free, "total_bytes", (json_int_t)f->n_total, "layers",
                      (json_int_t)f->n_layers, "layers_fit", (json_int_t)f->n_layers_fit);
        if (f->reason.status != QRN_OK)
            json_object_set_new(row, "reason", json_string(f->reason.text));
        json_array_append_new(out, row);
    }
    return out;
}

int info_json(const struct listing *l, const char *path, bool with_tensors,
              const struct qrn_model_info *model, const struct qrn_error *reason,
              const struct device_fit *fits, size_t n_fits)
{
    json_t *out = json_pack("{s:s, s:s, s:I, s:I, s:o, s:o}", "path", path, "format",
                            l->is_gguf ? "gguf" : "safetensors", "files", (json_int_t)l->n_files,
                            "bytes", (json_int_t)l->file_bytes, "metadata",
                            metadata_json(&l->gguf), "types", types_json(l));
    if (!out) return fail("out of memory");
    if (with_tensors) json_object_set_new(out, "tensors", tensors_json(l->archive));
    if (model) {
        json_object_set_new(out, "model", model_json(model));
        json_object_set_new(out, "devices", devices_json(fits, n_fits));
    } else {
        json_object_set_new(out, "cannot_run", json_string(reason->text));
    }
    return json_out(out);
}
