/* SPDX-License-Identifier: MIT
 * Opening a model: files, weights, the sizes of sequences, the buffers of a step. */
#include <quern/model.h>
#include <quern/version.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "base/error.h"
#include "base/checksum.h"
#include "base/log.h"
#include "base/memory.h"
#include "core/device_impl.h"
#include "model/ahead.h"
#include "model/fit.h"

enum { DEFAULT_BATCH = 512, DEFAULT_GPU_BATCH = 2048, LEAST_BATCH = 64, MOST_BATCH = 8192 };

static const char *architecture_name(enum qrn_architecture a)
{
    static const char *const names[] = {
        [QRN_QWEN35] = "qwen35", [QRN_QWEN35MOE] = "qwen35moe", [QRN_QWEN3NEXT] = "qwen3next"};
    return names[a];
}

static const char *format_name(enum qrn_model_format f)
{
    static const char *const names[] = {[QRN_FORMAT_GGUF] = "gguf",
                                        [QRN_FORMAT_SAFETENSORS] = "safetensors",
                                        [QRN_FORMAT_MLX] = "mlx"};
    return names[f];
}

static enum qrn_status check_options(const struct qrn_model_options *o, struct qrn_error *err)
{
    if (o->n_device_layers < 0)
        return qrn_fail(err, QRN_ERR_ARGUMENT, "n_device_layers is %" PRId64 ", wants 0 or more",
                        o->n_device_layers);
    if (!o->device && (!o->host_device || o->n_device_layers))
        return qrn_fail(err, QRN_ERR_ARGUMENT, "device is NULL");
    if (o->host_device && !qrn_device_host_reads(o->host_device))
        return qrn_fail(err, QRN_ERR_ARGUMENT,
                        "host_device is \"%s\", whose memory the host does not reach",
                        qrn_device_name(o->host_device));
    if ((unsigned)o->kv > QRN_KV_F32)
        return qrn_fail(err, QRN_ERR_ARGUMENT, "kv is %d, which is no type of cache", (int)o->kv);
    if (o->max_context < 0 || o->max_context > INT32_MAX)
        return qrn_fail(err, QRN_ERR_ARGUMENT, "max_context is %" PRId64 ", wants 0 to %d",
                        o->max_context, INT32_MAX);
    if (o->max_batch && (o->max_batch < LEAST_BATCH || o->max_batch > MOST_BATCH))
        return qrn_fail(err, QRN_ERR_ARGUMENT, "max_batch is %" PRId64 ", wants %d to %d",
                        o->max_batch, LEAST_BATCH, MOST_BATCH);
    return QRN_OK;
}

/* "quern 0.1.0, cpu avx512vnni, rounded activations, f16 cache, weights f32+q4_0"; of two stages "cpu
 * avx512vnni and from layer 12 on cuda sm_90" */
static enum qrn_status name_bits(struct qrn_model *m, bool exact, struct qrn_error *err)
{
    char text[512], devices[160];
    const struct qrn_stage *first = &m->stages[0], *last = qrn_model_last(m);
    if (first == last)
        (void)snprintf(devices, sizeof devices, "%s", qrn_device_bits(first->device));
    else
        (void)snprintf(devices, sizeof devices, "%s and from layer %" PRId64 " on %s",
                       qrn_device_bits(first->device), last->begin, qrn_device_bits(last->device));
    size_t n = (size_t)snprintf(
        text, sizeof text, "quern %s, %s, %s activations%s, %s cache, weights", qrn_version(),
        devices, exact ? "f32" : "rounded", last->rounds_many ? " (many: bf16)" : "",
        qrn_dtype_info(m->kv_dtype)->name);
    for (int t = 0, is_first = 1; t < QRN_DTYPE_COUNT && n < sizeof text; t++) {
        if (!(m->weights.dtypes >> t & 1)) continue;
        n += (size_t)snprintf(text + n, sizeof text - n, "%c%s", is_first ? ' ' : '+',
                              qrn_dtype_info((enum qrn_dtype)t)->name);
        is_first = 0;
    }
    m->bits = qrn_strdup(&m->host.allocator, text);
    return m->bits ? QRN_OK : qrn_fail_memory(err, n, "the bits id");
}

static void describe(struct qrn_model *m, const struct qrn_model_options *o,
                     const struct qrn_fit *fit)
{
    const struct qrn_model_config *c = &m->files.config;
    const struct qrn_seq_sizes *z = &m->sizes;
    m->info = (struct qrn_model_info){
        .architecture = architecture_name(c->architecture),
        .format = format_name(m->files.format),
        .bits = m->bits,
        .max_batch = m->max_batch,
        .n_layers = c->n_layers,
        .n_attention_layers = z->n_attention,
        .d_model = c->d_model,
        .vocab_size = c->vocab_size,
        .context_length = c->context_length,
        .n_heads = c->n_heads,
        .n_kv_heads = c->n_kv_heads,
        .head_dim = c->head_dim,
        .n_k_heads = c->n_k_heads,
        .n_v_heads = c->n_v_heads,
        .d_k = c->d_k,
        .d_v = c->d_v,
        .conv_kernel = c->conv_kernel,
        .d_ff = c->n_experts ? c->d_ff_expert : c->d_ff,
        .n_experts = c->n_experts,
        .n_experts_used = c->n_experts_used,
        .n_parameters = m->weights.n_parameters,
        .weight_bytes = m->weights.n_bytes,
        .read_bytes_per_token = m->weights.bytes_per_token,
        .state_bytes = z->state,
        .rows_bytes = z->rows,
        .history_bytes_per_row = (size_t)z->n_linear * z->history_row,
        .kv_bytes_per_token = z->page / QRN_CHUNK,
        .work_bytes = fit->all_buffers,
        .n_device_layers = o->host_device && !o->n_device_layers ? 0 : fit->n_layers,
        .device_bytes = fit->weights + fit->buffers + fit->sequence,
        .n_layers_fit = fit->n_layers_fit,
    };
}

/* One stage on one device, or the first layers on host_device and the last ones on device. */
static void make_stages(struct qrn_model *m, const struct qrn_model_options *o)
{
    const int64_t n_layers = m->files.config.n_layers;
    const int64_t n =
        o->host_device && o->n_device_layers < n_layers ? o->n_device_layers : n_layers;
    if (n < n_layers)
        m->stages[m->n_stages++] =
            (struct qrn_stage){.device = o->host_device, .begin = 0, .end = n_layers - n};
    if (n > 0)
        m->stages[m->n_stages++] =
            (struct qrn_stage){.device = o->device, .begin = n_layers - n, .end = n_layers};
    for (int i = 0; i < m->n_stages; i++) {
        struct qrn_stage *stage = &m->stages[i];
        const bool is_far = !qrn_device_host_reads(stage->device);
        stage->is_last = i == m->n_stages - 1;
        stage->takes_bf16 = is_far;
        stage->rounds_many = is_far && !o->exact && !o->exact_batch;
    }
}

/* The buffers of a step, and whether the devices can do it. */
static enum qrn_status prepare_steps(struct qrn_model *m, struct qrn_error *err)
{
    const size_t n_parts = (size_t)m->max_batch * sizeof *m->parts;
    m->parts = qrn_alloc_zeroed(&m->host.allocator, n_parts);
    if (!m->parts) return qrn_fail_memory(err, n_parts, "the parts of a step");
    m->ahead = qrn_alloc_zeroed(&m->host.allocator, sizeof *m->ahead);
    if (!m->ahead) return qrn_fail_memory(err, sizeof *m->ahead, "a step ahead");
    for (int i = 0; i < m->n_stages; i++) {
        struct qrn_stage *stage = &m->stages[i];
        QRN_TRY(qrn_workspace_init(&stage->work, &m->files.config, stage->device, m->max_batch,
                                   stage->is_last, &m->host, err));
        if (!qrn_device_host_reads(stage->device)) QRN_TRY(qrn_model_check_kernels(m, stage, err));
    }
    return QRN_OK;
}

static enum qrn_status open_parts(struct qrn_model *m, const struct qrn_model_options *o,
                                  struct qrn_error *err)
{
    const struct qrn_model_config *c = &m->files.config;
    QRN_TRY(qrn_model_files_open(o, &m->files, err));
    make_stages(m, o);
    struct qrn_device *last = qrn_model_last(m)->device;
    m->max_context = o->max_context ? o->max_context : c->context_length;
    m->max_batch = o->max_batch                  ? o->max_batch
                   : qrn_device_host_reads(last) ? DEFAULT_BATCH
                                                 : DEFAULT_GPU_BATCH;
    QRN_TRY(qrn_model_measure_sequences(m, err));
    const struct qrn_load_options load = {.stages = m->stages,
                                          .n_stages = m->n_stages,
                                          .exact = o->exact,
                                          .progress = o->progress,
                                          .progress_user = o->progress_user};
    QRN_TRY(qrn_weights_measure(&m->files, &load, &m->host, &m->weights, err));
    struct qrn_fit fit;
    QRN_TRY(qrn_model_measure_fit(m, &fit, err));
    if (!o->only_info) {
        QRN_TRY(qrn_model_check_fit(m, &fit, err));
        QRN_TRY(qrn_weights_load(&m->files, &load, &m->weights, err));
    }
    QRN_TRY(name_bits(m, o->exact, err));
    QRN_TRY(qrn_pool_create(last, o->budget_bytes, &m->pool, err));
    if (!o->only_info) QRN_TRY(prepare_steps(m, err));
    describe(m, o, &fit);
    qrn_log(&m->host, QRN_LOG_INFO, "%s (%s), %zu bytes of weights, bits id \"%s\"",
            m->info.architecture, m->info.format, m->info.weight_bytes, m->bits);
    return QRN_OK;
}

enum qrn_status qrn_model_open(const struct qrn_model_options *o, struct qrn_model **out,
                               struct qrn_error *err)
{
    QRN_TRY(check_options(o, err));
    struct qrn_model *m = qrn_alloc_zeroed(&o->host.allocator, sizeof *m);
    if (!m) return qrn_fail_memory(err, sizeof *m, "a model");
    m->host = o->host;
    m->direct = o->direct;
    m->only_info = o->only_info;
    m->kv_dtype = o->kv == QRN_KV_F32 || (o->kv == QRN_KV_DEFAULT && o->exact) ? QRN_F32 : QRN_F16;
    if (pthread_mutex_init(&m->lock, NULL) != 0) {
        qrn_free(&o->host.allocator, m, sizeof *m);
        return qrn_fail(err, QRN_ERR_DEVICE, "cannot make a mutex");
    }
    const enum qrn_status s = open_parts(m, o, err);
    if (s != QRN_OK) {
        qrn_model_close(m);
        return s;
    }
    *out = m;
    return QRN_OK;
}

void qrn_model_close(struct qrn_model *m)
{
    if (!m) return;
    const struct qrn_allocator a = m->host.allocator;
    for (int i = 0; i < m->n_stages; i++) qrn_workspace_free(&m->stages[i].work);
    qrn_free(&a, m->parts, (size_t)m->max_batch * sizeof *m->parts);
    qrn_free(&a, m->ahead, sizeof *m->ahead);
    qrn_pool_destroy(m->pool);
    qrn_strfree(&a, m->bits);
    qrn_weights_free(&m->weights);
    qrn_model_files_close(&m->files);
    pthread_mutex_destroy(&m->lock);
    qrn_free(&a, m, sizeof *m);
}

const struct qrn_model_info *qrn_model_info(const struct qrn_model *m)
{
    return &m->info;
}

const char *qrn_model_bits(const struct qrn_model *m)
{
    return m->bits;
}

const struct qrn_tokenizer *qrn_model_tokenizer(const struct qrn_model *m)
{
    return m->files.tokenizer;
}

const int32_t *qrn_model_end_tokens(const struct qrn_model *m, size_t *n)
{
    *n = (size_t)m->files.config.n_eos;
    return m->files.config.eos;
}

struct qrn_pool_stats qrn_model_memory(struct qrn_model *m)
{
    return qrn_pool_stats(m->pool);
}

/* Up to 16 pieces of 4 KiB, evenly spread: enough to tell models apart, fast for any size. */
static uint64_t hash_samples(uint64_t h, const uint8_t *data, size_t n)
{
    enum { PIECE = 4096, N_PIECES = 16 };
    if (n <= (size_t)PIECE * N_PIECES) return qrn_hash_bytes(h, data, n);
    for (size_t i = 0; i < N_PIECES; i++)
        h = qrn_hash_bytes(h, data + (n - PIECE) / (N_PIECES - 1) * i, PIECE);
    return h;
}

uint64_t qrn_model_hash(const struct qrn_model *m)
{
    const struct qrn_archive *archive = m->files.archive;
    uint64_t h = QRN_HASH_START;
    for (size_t i = 0; i < archive->n_tensors; i++) {
        const struct qrn_archive_tensor *t = &archive->tensors[i];
        h = qrn_hash_bytes(h, t->name, strlen(t->name));
        h = qrn_hash_bytes(h, t->type_name, strlen(t->type_name));
        h = qrn_hash_bytes(h, t->shape, (size_t)t->n_dims * sizeof *t->shape);
        if (t->data) h = hash_samples(h, t->data, t->n_bytes);
    }
    return h;
}
