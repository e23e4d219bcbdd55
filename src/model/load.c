/* SPDX-License-Identifier: MIT
 * The steps of loading that all formats share. */
#include "model/load.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/error.h"
#include "base/memory.h"
#include "formats/blocks.h"

const struct qrn_archive_tensor *qrn_load_find(struct loader *ld, const char *name)
{
    return qrn_archive_find(ld->files->archive, name);
}

enum qrn_status qrn_load_need(struct loader *ld, const char *name,
                              const struct qrn_archive_tensor **out)
{
    *out = qrn_load_find(ld, name);
    if (*out) return QRN_OK;
    return qrn_fail(ld->err, QRN_ERR_FORMAT, "tensor \"%s\" is missing", name);
}

void qrn_load_enter(struct loader *ld, int i_stage)
{
    ld->stage = &ld->options->stages[i_stage];
    ld->room = &ld->rooms[i_stage];
    ld->host_reads = qrn_device_host_reads(ld->stage->device);
}

void qrn_load_enter_layer(struct loader *ld, int64_t i_layer)
{
    struct qrn_weights *w = ld->weights;
    int i = 0;
    while (i < ld->options->n_stages - 1 && i_layer >= ld->options->stages[i].end) i++;
    qrn_load_enter(ld, i);
    if (i_layer < w->n_layers)
        w->layers[i_layer].before = ld->room->used;
    else
        w->of_layers = ld->room->used;
}

void *qrn_load_take(struct loader *ld, size_t n_bytes)
{
    const size_t at = ld->room->used;
    ld->room->used += (n_bytes + QRN_ALIGNMENT - 1) / QRN_ALIGNMENT * QRN_ALIGNMENT;
    return ld->room->memory ? ld->room->memory + at : NULL;
}

enum qrn_status qrn_load_advance(struct loader *ld, size_t n_bytes)
{
    ld->bytes_done += n_bytes;
    const struct qrn_load_options *o = ld->options;
    if (!ld->room->memory || !o->progress || !ld->bytes_total) return QRN_OK;
    const double done = (double)ld->bytes_done / (double)ld->bytes_total;
    if (o->progress(o->progress_user, done < 1.0 ? done : 1.0)) return QRN_OK;
    return qrn_fail(ld->err, QRN_ERR_CANCELLED, "opening the model was cancelled");
}

static enum qrn_status need_values(struct loader *ld, const struct qrn_archive_tensor *t)
{
    if (t->dtype < QRN_DTYPE_COUNT && qrn_decoder(t->dtype)) return QRN_OK;
    return qrn_fail(ld->err, QRN_ERR_UNSUPPORTED,
                    "tensor \"%s\" is of type %s, which has no decoder", t->name, t->type_name);
}

/* "x.weight" -> "x.scales" */
static bool sibling(const char *name, const char *suffix, char out[LOAD_NAME_BYTES])
{
    const size_t n = strlen(name), w = strlen(".weight");
    const size_t stem = n >= w && strcmp(name + n - w, ".weight") == 0 ? n - w : n;
    return snprintf(out, LOAD_NAME_BYTES, "%.*s%s", (int)stem, name, suffix) < LOAD_NAME_BYTES;
}

enum qrn_status qrn_load_run(struct loader *ld, const char *name, struct row_run *out)
{
    char other[LOAD_NAME_BYTES];
    struct row_run run = {0};
    QRN_TRY(qrn_load_need(ld, name, &run.tensor));
    if (sibling(name, ".scale", other) && qrn_load_find(ld, other))
        return qrn_fail(ld->err, QRN_ERR_UNSUPPORTED,
                        "tensor \"%s\" has a scale of its own (\"%s\")", name, other);
    if (ld->files->format != QRN_FORMAT_GGUF && sibling(name, ".scales", other))
        run.scales = qrn_load_find(ld, other);
    if (run.scales) {
        if (!sibling(name, ".biases", other) || !(run.biases = qrn_load_find(ld, other)))
            return qrn_fail(ld->err, QRN_ERR_UNSUPPORTED,
                            "tensor \"%s\" has scales but no biases: not an affine quantisation",
                            name);
        QRN_TRY(need_values(ld, run.scales));
        QRN_TRY(need_values(ld, run.biases));
        if (run.tensor->dtype != QRN_U32)
            return qrn_fail(ld->err, QRN_ERR_FORMAT, "tensor \"%s\" has scales but is of type %s",
                            name, run.tensor->type_name);
    } else {
        QRN_TRY(need_values(ld, run.tensor));
    }
    run.n = qrn_load_rows_of(run.tensor);
    *out = run;
    return QRN_OK;
}

static void decode(const struct qrn_archive_tensor *t, int64_t n, enum change change, float *values)
{
    qrn_decoder(t->dtype)(t->data, values, (size_t)n);
    for (int64_t i = 0; i < n; i++) {
        if (change == PLUS_ONE) values[i] = 1.0f + values[i];
        if (change == MINUS_EXP) values[i] = (float)-exp((double)values[i]);
    }
}

static enum qrn_status fill_vector(struct loader *ld, const struct qrn_archive_tensor *t, int64_t n,
                                   enum change change, float *out)
{
    const size_t bytes = (size_t)n * sizeof(float);
    if (ld->host_reads) {
        decode(t, n, change, out);
        return QRN_OK;
    }
    float *values = qrn_alloc(ld->allocator, bytes);
    if (!values) return qrn_fail_memory(ld->err, bytes, "a vector of weights");
    decode(t, n, change, values);
    const enum qrn_status s = qrn_upload_write(&ld->upload, out, values, bytes, ld->err);
    qrn_free(ld->allocator, values, bytes);
    return s;
}

enum qrn_status qrn_load_vector(struct loader *ld, const char *name, int64_t n, enum change change,
                                struct qrn_tensor *out)
{
    const struct qrn_archive_tensor *t;
    QRN_TRY(qrn_load_need(ld, name, &t));
    QRN_TRY(need_values(ld, t));
    if (qrn_load_elements(t) != n)
        return qrn_fail(ld->err, QRN_ERR_FORMAT,
                        "tensor \"%s\" has %" PRId64 " elements, wants %" PRId64, name,
                        qrn_load_elements(t), n);
    float *values = qrn_load_take(ld, (size_t)n * sizeof(float));
    if (values) QRN_TRY(fill_vector(ld, t, n, change, values));
    ld->weights->n_parameters += n;
    ld->weights->n_bytes += (size_t)n * sizeof(float);
    ld->weights->bytes_per_token += (size_t)n * sizeof(float);
    *out = qrn_tensor_1d(QRN_F32, values, n);
    return qrn_load_advance(ld, t->n_bytes);
}
