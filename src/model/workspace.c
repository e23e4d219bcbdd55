/* SPDX-License-Identifier: MIT
 * The buffers of one step. */
#include "model/workspace.h"

#include <string.h>
#include "base/error.h"
#include "base/memory.h"
#include "model/batch.h"

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Rounded temporaries take half of their floats at most. */
static int64_t rounded(int64_t n)
{
    return (n + 1) / 2;
}

/* Floats a token needs for the temporaries of a mixer or an mlp; forward.c takes them in this size. */
static int64_t mixer_width(const struct qrn_model_config *c)
{
    const int64_t value = c->n_v_heads * c->d_v, conv = 2 * c->n_k_heads * c->d_k + value;
    const int64_t linear = 2 * conv + 2 * value + 4 * c->n_v_heads + rounded(value);
    const int64_t attention =
        (3 * c->n_heads + 2 * c->n_kv_heads) * c->head_dim + rounded(c->n_heads * c->head_dim);
    return larger(linear, attention);
}

static int64_t mlp_width(const struct qrn_model_config *c)
{
    const int64_t ff = c->n_experts_used * c->d_ff_expert;
    if (!c->n_experts) return 2 * c->d_ff + rounded(c->d_ff);
    return c->n_experts + 2 * c->n_experts_used + 2 * ff + rounded(ff) +
           c->n_experts_used * c->d_model + 2 * c->d_ff_shared + rounded(c->d_ff_shared) +
           c->d_model + 1;
}

/* Hands out aligned pieces of one block: first counting (base NULL), then for real. */
struct carver {
    char *base;
    size_t used;
};

static void *carve(struct carver *c, int64_t n, size_t element)
{
    const size_t at = c->used;
    c->used += ((size_t)n * element + QRN_ALIGNMENT - 1) / QRN_ALIGNMENT * QRN_ALIGNMENT;
    return c->base ? c->base + at : NULL;
}

static void lay_out(struct qrn_workspace *w, const struct qrn_model_config *c, struct carver *m)
{
    const int64_t n = w->max_tokens;
    w->parts = carve(m, n, sizeof *w->parts);
    w->ids = carve(m, n, sizeof(int32_t));
    w->positions = carve(m, n, sizeof(int32_t));
    w->seq_begin = carve(m, n + 1, sizeof(int32_t));
    w->seq_position = carve(m, n, sizeof(int32_t));
    w->head_rows = carve(m, QRN_HEAD_ROWS, sizeof(int32_t));
    w->state = carve(m, n * 3, sizeof(uint64_t));
    w->rows = carve(m, n * 2, sizeof(uint64_t));
    w->history = carve(m, n, sizeof(uint64_t));
    w->x = carve(m, n * c->d_model, sizeof(float));
    w->normed = carve(m, n * c->d_model, sizeof(float));
    w->normed_rounded = carve(m, n * rounded(c->d_model), sizeof(float));
    /* each temporary starts on an aligned address */
    w->mixer_floats = (size_t)(n * mixer_width(c) + 16 * 16);
    w->mlp_floats =
        (size_t)(larger(n * mlp_width(c), QRN_HEAD_ROWS * rounded(c->d_model)) + 16 * 16);
    w->mixer = carve(m, (int64_t)w->mixer_floats, sizeof(float));
    w->mlp = carve(m, (int64_t)w->mlp_floats, sizeof(float));
    w->head_normed = carve(m, 2 * QRN_HEAD_ROWS * c->d_model, sizeof(float));
    w->logits = carve(m, QRN_HEAD_ROWS * c->vocab_size, sizeof(float));
    w->layer_end = carve(m, c->n_layers + 1, sizeof(size_t));
}

size_t qrn_workspace_bytes(const struct qrn_model_config *config, int64_t max_tokens)
{
    struct qrn_workspace w = {.max_tokens = max_tokens};
    struct carver count = {0};
    lay_out(&w, config, &count);
    return count.used;
}

enum qrn_status qrn_workspace_init(struct qrn_workspace *w, const struct qrn_model_config *config,
                                   struct qrn_device *device, int64_t max_tokens,
                                   const struct qrn_host *host, struct qrn_error *err)
{
    *w = (struct qrn_workspace){.max_tokens = max_tokens, .allocator = host->allocator};
    w->n_bytes = qrn_workspace_bytes(config, max_tokens);
    w->memory = qrn_alloc_zeroed(&w->allocator, w->n_bytes);
    if (!w->memory) return qrn_fail_memory(err, w->n_bytes, "the buffers of a step");
    lay_out(w, config, &(struct carver){.base = w->memory});
    enum qrn_status s = qrn_encoder_create(device, &w->body, err);
    if (s == QRN_OK) s = qrn_encoder_create(device, &w->head, err);
    if (s != QRN_OK) qrn_workspace_free(w);
    return s;
}

void qrn_workspace_free(struct qrn_workspace *w)
{
    qrn_encoder_destroy(w->body);
    qrn_encoder_destroy(w->head);
    qrn_free(&w->allocator, w->pages, w->n_pages * sizeof *w->pages);
    qrn_free(&w->allocator, w->memory, w->n_bytes);
    *w = (struct qrn_workspace){0};
}

enum qrn_status qrn_workspace_reserve_pages(struct qrn_workspace *w, size_t n,
                                            struct qrn_error *err)
{
    if (n <= w->n_pages) return QRN_OK;
    uint64_t *pages = qrn_alloc_zeroed(&w->allocator, n * sizeof *pages);
    if (!pages) return qrn_fail_memory(err, n * sizeof *pages, "a table of pages");
    qrn_free(&w->allocator, w->pages, w->n_pages * sizeof *w->pages);
    w->pages = pages;
    w->n_pages = n;
    w->body_shape = (struct qrn_step_shape){0}; /* the recording points at the old table */
    return QRN_OK;
}
