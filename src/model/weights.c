/* SPDX-License-Identifier: MIT
 * Loading all weights of a model, and giving them back. */
#include "model/weights.h"

#include "base/error.h"
#include "base/memory.h"
#include "model/load.h"

void qrn_weights_free(struct qrn_weights *w)
{
    const struct qrn_allocator *a = &w->allocator;
    qrn_buffer_release(w->memory);
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

/* The host's memory is the system's business; a device that has too little is refused before anything
 * is read. */
static enum qrn_status check_fit(const struct loader *ld)
{
    const double gib = 1024.0 * 1024.0 * 1024.0;
    struct qrn_device *dev = ld->options->device;
    size_t n_free, n_total, needed;
    if (ld->host_reads) return QRN_OK;
    QRN_TRY(qrn_device_memory(dev, &n_free, &n_total, ld->err));
    if (qrn_add_size(ld->memory_used, ld->options->work_bytes, &needed) && needed <= n_free)
        return QRN_OK;
    return qrn_fail(ld->err, QRN_ERR_MEMORY,
                    "the model does not fit on the device: %.3f GiB of weights and %.3f GiB of "
                    "buffers, %.3f of %.3f GiB are free",
                    (double)ld->memory_used / gib, (double)ld->options->work_bytes / gib,
                    (double)n_free / gib, (double)n_total / gib);
}

/* The second walk, after the one that measured. */
static enum qrn_status fill(struct loader *ld)
{
    struct qrn_weights *w = ld->weights;
    QRN_TRY(check_fit(ld));
    if (ld->memory_used)
        QRN_TRY(qrn_buffer_create(ld->options->device, ld->memory_used, &w->memory, ld->err));
    ld->memory = w->memory ? qrn_buffer_data(w->memory) : NULL;
    ld->memory_used = 0;
    ld->bytes_done = 0;
    w->n_parameters = 0;
    w->n_bytes = w->bytes_per_token = 0;
    w->dtypes = 0;
    if (ld->host_reads) return walk(ld);
    QRN_TRY(qrn_upload_begin(&ld->upload, ld->options->device, ld->err));
    enum qrn_status s = walk(ld);
    if (s == QRN_OK) s = qrn_upload_flush(&ld->upload, ld->err);
    const enum qrn_status ended = qrn_upload_end(&ld->upload, s == QRN_OK ? ld->err : NULL);
    return s != QRN_OK ? s : ended;
}

enum qrn_status qrn_weights_load(const struct qrn_model_files *files,
                                 const struct qrn_load_options *options,
                                 const struct qrn_host *host, struct qrn_weights *out,
                                 struct qrn_error *err)
{
    const struct qrn_model_config *c = &files->config;
    struct qrn_weights w = {
        .n_layers = c->n_layers,
        .head_map = c->heads_tiled ? QRN_HEADS_TILED : QRN_HEADS_BLOCK,
        .allocator = host->allocator,
    };
    w.layers = qrn_alloc_zeroed(&w.allocator, (size_t)c->n_layers * sizeof *w.layers);
    if (!w.layers) return qrn_fail_memory(err, (size_t)c->n_layers * sizeof *w.layers, "layers");
    for (int64_t i = 0; i < c->n_layers; i++) {
        w.layers[i].is_linear = c->layer_is_linear[i];
        w.layers[i].is_moe = c->n_experts > 0;
    }
    struct loader ld = {.files = files,
                        .config = c,
                        .options = options,
                        .allocator = &w.allocator,
                        .weights = &w,
                        .host_reads = qrn_device_host_reads(options->device),
                        .bytes_total = archive_bytes(files->archive),
                        .err = err};
    enum qrn_status s = walk(&ld);
    if (s == QRN_OK && !options->only_measure) s = fill(&ld);
    if (s != QRN_OK) {
        qrn_weights_free(&w);
        return s;
    }
    qrn_model_files_release_all(files);
    if (options->progress) (void)options->progress(options->progress_user, 1.0);
    *out = w;
    return QRN_OK;
}
