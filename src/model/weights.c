/* SPDX-License-Identifier: MIT
 * Loading all weights of a model, and giving them back. */
#include "model/weights.h"

#include "base/error.h"
#include "base/memory.h"
#include "model/load.h"

void qrn_weights_free(struct qrn_weights *w)
{
    const struct qrn_allocator *a = &w->allocator;
    for (int i = 0; i < QRN_MAX_STAGES; i++) qrn_buffer_release(w->memory[i]);
    qrn_free(a, w->layers, (size_t)w->n_layers * sizeof *w->layers);
    *w = (struct qrn_weights){0};
}

static size_t archive_bytes(const struct qrn_archive *archive)
{
    size_t n = 0;
    for (size_t i = 0; i < archive->n_tensors; i++) n += archive->tensors[i].n_bytes;
    return n;
}

static enum qrn_status walk(struct loader *ld)
{
    return ld->files->format == QRN_FORMAT_GGUF ? qrn_load_gguf(ld) : qrn_load_hf(ld);
}

/* Memory of the stages' devices, after a walk has measured how much. */
static enum qrn_status take_memory(struct loader *ld)
{
    struct qrn_weights *w = ld->weights;
    for (int i = 0; i < ld->options->n_stages; i++) {
        if (w->n_memory[i])
            QRN_TRY(qrn_buffer_create(ld->options->stages[i].device, w->n_memory[i], &w->memory[i],
                                      ld->err));
        ld->rooms[i].memory = w->memory[i] ? qrn_buffer_data(w->memory[i]) : NULL;
    }
    return QRN_OK;
}

static struct loader loader_of(const struct qrn_model_files *files,
                               const struct qrn_load_options *options, struct qrn_weights *weights,
                               struct qrn_error *err)
{
    return (struct loader){.files = files,
                           .config = &files->config,
                           .options = options,
                           .allocator = &weights->allocator,
                           .weights = weights,
                           .bytes_total = archive_bytes(files->archive),
                           .err = err};
}

enum qrn_status qrn_weights_measure(const struct qrn_model_files *files,
                                    const struct qrn_load_options *options,
                                    const struct qrn_host *host, struct qrn_weights *w,
                                    struct qrn_error *err)
{
    const struct qrn_model_config *c = &files->config;
    *w = (struct qrn_weights){
        .n_layers = c->n_layers,
        .head_map = c->heads_tiled ? QRN_HEADS_TILED : QRN_HEADS_BLOCK,
        .allocator = host->allocator,
    };
    w->layers = qrn_alloc_zeroed(&w->allocator, (size_t)c->n_layers * sizeof *w->layers);
    if (!w->layers) return qrn_fail_memory(err, (size_t)c->n_layers * sizeof *w->layers, "layers");
    for (int64_t i = 0; i < c->n_layers; i++) {
        w->layers[i].is_linear = c->layer_is_linear[i];
        w->layers[i].is_moe = c->n_experts > 0;
    }
    struct loader ld = loader_of(files, options, w, err);
    QRN_TRY(walk(&ld));
    for (int i = 0; i < options->n_stages; i++) w->n_memory[i] = ld.rooms[i].used;
    return QRN_OK;
}

enum qrn_status qrn_weights_load(const struct qrn_model_files *files,
                                 const struct qrn_load_options *options, struct qrn_weights *w,
                                 struct qrn_error *err)
{
    struct loader ld = loader_of(files, options, w, err);
    struct qrn_device *last = options->stages[options->n_stages - 1].device;
    QRN_TRY(take_memory(&ld));
    w->n_parameters = 0;
    w->n_bytes = w->bytes_per_token = 0;
    w->dtypes = 0;
    if (!qrn_device_host_reads(last)) QRN_TRY(qrn_upload_begin(&ld.upload, last, err));
    enum qrn_status s = walk(&ld);
    if (s == QRN_OK) s = qrn_upload_flush(&ld.upload, err);
    const enum qrn_status ended = qrn_upload_end(&ld.upload, s == QRN_OK ? err : NULL);
    if (s == QRN_OK) s = ended;
    if (s != QRN_OK) return s;
    qrn_model_files_release_all(files);
    if (options->progress) (void)options->progress(options->progress_user, 1.0);
    return QRN_OK;
}
