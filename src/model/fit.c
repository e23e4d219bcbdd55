/* SPDX-License-Identifier: MIT
 * What a model takes of its devices' memory. */
#include "model/fit.h"

#include <inttypes.h>
#include <stdio.h>
#include "base/error.h"
#include "base/memory.h"
#include "core/device_impl.h"
#include "model/seq.h"
#include "model/upload.h"

static bool mul(size_t a, int64_t b, size_t *out)
{
    return qrn_mul_size(a, (size_t)b, out);
}

/* Of layers begin .. end - 1.  False: a number does not fit. */
static bool measure(const struct qrn_model *m, int64_t begin, int64_t end,
                    struct qrn_seq_sizes *out)
{
    const struct qrn_model_config *c = &m->files.config;
    struct qrn_seq_sizes z = {0};
    bool fits = true;
    for (int64_t i = begin; i < end; i++)
        if (c->layer_is_linear[i])
            z.n_linear++;
        else
            z.n_attention++;
    if (z.n_linear) {
        const int64_t n_conv = 2 * c->n_k_heads * c->d_k + c->n_v_heads * c->d_v;
        z.state_layer = qrn_gdn_state_bytes(c->n_v_heads, c->d_k, c->d_v);
        z.rows_layer = qrn_gdn_rows_bytes(c->n_k_heads, c->n_v_heads, c->d_k, c->d_v);
        z.history_row = (size_t)n_conv * sizeof(float);
        fits = z.state_layer && z.rows_layer && mul(z.state_layer, z.n_linear, &z.state) &&
               mul(z.rows_layer, z.n_linear, &z.rows);
    }
    if (z.n_attention) {
        z.page_layer = qrn_kv_page_bytes(m->kv_dtype, c->n_kv_heads, c->head_dim);
        fits = fits && z.page_layer && mul(z.page_layer, z.n_attention, &z.page);
    }
    *out = z;
    return fits;
}

enum qrn_status qrn_model_measure_sequences(struct qrn_model *m, struct qrn_error *err)
{
    bool fits = measure(m, 0, m->files.config.n_layers, &m->sizes);
    for (int i = 0; i < m->n_stages; i++)
        fits = fits && measure(m, m->stages[i].begin, m->stages[i].end, &m->stages[i].sizes);
    if (fits) return QRN_OK;
    return qrn_fail(err, QRN_ERR_UNSUPPORTED, "the state of a sequence does not fit in memory");
}

/* A sequence without rollback and with one page, in the midst of a step over several chunks: fresh
 * buffers beside the old ones (batch.c). */
static size_t sequence_bytes(const struct qrn_model *m, const struct qrn_seq_sizes *z)
{
    const size_t n_history = (size_t)m->files.config.conv_kernel - 1 + QRN_HISTORY_SLACK;
    return 3 * (z->state + z->rows) + 2 * (size_t)z->n_linear * n_history * z->history_row +
           z->page;
}

/* What the last n layers take with the output matrix; all layers with the embedding, too. */
static size_t needed_by(const struct qrn_model *m, const struct qrn_fit *f, int64_t n)
{
    const struct qrn_weights *w = &m->weights;
    const size_t all = w->n_memory[m->n_stages - 1];
    const size_t before = n ? w->layers[w->n_layers - n].before : w->of_layers;
    struct qrn_seq_sizes z;
    (void)measure(m, w->n_layers - n, w->n_layers, &z);
    return all - before - (n < w->n_layers ? w->of_embedding : 0) + f->buffers +
           sequence_bytes(m, &z);
}

/* What loading and kernels work in, about. */
static size_t spare_bytes(size_t n_free)
{
    const size_t least = QRN_UPLOAD_BYTES + ((size_t)1 << 20), most = (size_t)256 << 20;
    return n_free / 16 < least ? least : n_free / 16 > most ? most : n_free / 16;
}

/* The most layers that leave some room beside them. */
static int64_t layers_that_fit(const struct qrn_model *m, const struct qrn_fit *f)
{
    const size_t spare = spare_bytes(f->n_free);
    int64_t n = f->n_layers;
    if (f->n_free == 0 || f->weights + f->buffers + f->sequence <= f->n_free) return n;
    while (n > 0 && needed_by(m, f, n) + spare > f->n_free) n--;
    return n;
}

enum qrn_status qrn_model_measure_fit(const struct qrn_model *m, struct qrn_fit *out,
                                      struct qrn_error *err)
{
    const struct qrn_stage *last = &m->stages[m->n_stages - 1];
    const struct qrn_model_config *c = &m->files.config;
    struct qrn_fit f = {.n_layers = last->end - last->begin,
                        .weights = qrn_device_host_reads(last->device)
                                       ? m->weights.n_bytes
                                       : m->weights.n_memory[m->n_stages - 1],
                        .buffers = qrn_workspace_bytes(c, m->max_batch, true),
                        .sequence = sequence_bytes(m, &last->sizes)};
    f.all_buffers = f.buffers;
    if (m->n_stages > 1) f.all_buffers += qrn_workspace_bytes(c, m->max_batch, false);
    QRN_TRY(qrn_device_memory(last->device, &f.n_free, &f.n_total, err));
    f.n_layers_fit = layers_that_fit(m, &f);
    *out = f;
    return QRN_OK;
}

enum qrn_status qrn_model_check_fit(const struct qrn_model *m, const struct qrn_fit *f,
                                    struct qrn_error *err)
{
    char fits[80];
    if (f->n_free == 0 || f->weights + f->buffers + f->sequence <= f->n_free) return QRN_OK;
    (void)snprintf(fits, sizeof fits, "its last %" PRId64 " of %" PRId64 " layers would fit",
                   f->n_layers_fit, m->weights.n_layers);
    return qrn_fail(err, QRN_ERR_MEMORY,
                    "the model does not fit on the device: %.3f GiB of weights and %.3f GiB for "
                    "steps and a short sequence, %.3f of %.3f GiB are free; %s",
                    (double)f->weights / 0x1p30, (double)(f->buffers + f->sequence) / 0x1p30,
                    (double)f->n_free / 0x1p30, (double)f->n_total / 0x1p30,
                    f->n_layers_fit ? fits : "none of its layers would fit");
}
