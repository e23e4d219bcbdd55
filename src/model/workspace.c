/* SPDX-License-Identifier: MIT
 * The buffers of one step. */
#include "model/workspace.h"

#include <string.h>
#include "base/error.h"
#include "base/memory.h"

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
    w->x = carve(m, n * c->d_model, sizeof(float));
    w->normed = carve(m, n * c->d_model, sizeof(float));
    w->normed_rounded = carve(m, n * rounded(c->d_model), sizeof(float));
    /* each temporary starts on an aligned address */
    w->mixer_floats = (size_t)(n * mixer_width(c) + 16 * 16);
    w->mlp_floats =
        (size_t)(larger(n * mlp_width(c), QRN_HEAD_ROWS * rounded(c->d_model)) + 16 * 16);
    w->mixer = carve(m, (int64_t)w->mixer_floats, sizeof(float));
    w->mlp = carve(m, (int64_t)w->mlp_floats, sizeof(float));
    if (!w->has_head) return;
    w->head_normed = carve(m, 2 * QRN_HEAD_ROWS * c->d_model, sizeof(float));
    w->logits = carve(m, QRN_HEAD_ROWS * c->vocab_size, sizeof(float));
    w->drawn = carve(m, 1, sizeof *w->drawn);
}

static struct qrn_tables lay_out_tables(struct qrn_step_shape s, int64_t n_penalised, char *base)
{
    struct carver m = {.base = base};
    struct qrn_tables t;
    t.head_rows = carve(&m, QRN_HEAD_ROWS, sizeof(int32_t));
    t.ids = carve(&m, s.n_tokens, sizeof(int32_t));
    t.positions = carve(&m, s.n_tokens, sizeof(int32_t));
    t.seq_begin = carve(&m, s.n_seqs + 1, sizeof(int32_t));
    t.seq_position = carve(&m, s.n_seqs, sizeof(int32_t));
    t.state = carve(&m, s.n_seqs * 3, sizeof(uint64_t));
    t.rows = carve(&m, s.n_seqs * 2, sizeof(uint64_t));
    t.history = carve(&m, s.n_seqs, sizeof(uint64_t));
    t.pages = carve(&m, s.n_seqs * s.max_pages, sizeof(uint64_t));
    t.penalised = carve(&m, n_penalised, sizeof(int32_t));
    t.n_bytes = m.used;
    return t;
}

/* The largest batch of one sequence, or a batch of many with short tables of pages. */
static struct qrn_step_shape first_shape(int64_t max_tokens)
{
    return (struct qrn_step_shape){.n_tokens = max_tokens, .n_seqs = 32, .max_pages = 64};
}

/* The parts of a workspace. */
struct extent {
    size_t memory, tables;
};

static struct extent measure(const struct qrn_model_config *config, int64_t max_tokens,
                             bool has_head)
{
    struct qrn_workspace w = {.max_tokens = max_tokens, .has_head = has_head};
    struct carver m = {0};
    lay_out(&w, config, &m);
    return (struct extent){m.used, lay_out_tables(first_shape(max_tokens), 0, NULL).n_bytes};
}

size_t qrn_workspace_bytes(const struct qrn_model_config *config, int64_t max_tokens, bool has_head)
{
    const struct extent n = measure(config, max_tokens, has_head);
    return n.memory + n.tables;
}

/* Room for tables of n_bytes; recordings have the old places in them. */
static enum qrn_status reserve_tables(struct qrn_workspace *w, size_t n_bytes,
                                      struct qrn_error *err)
{
    const bool is_far = !qrn_device_host_reads(w->device);
    struct qrn_staging staging;
    struct qrn_buffer *memory = NULL;
    if (n_bytes <= w->table_bytes) return QRN_OK;
    QRN_TRY(qrn_staging_create(w->device, is_far ? 2 * n_bytes : n_bytes, &staging, err));
    if (is_far) {
        const enum qrn_status s = qrn_buffer_create(w->device, n_bytes, &memory, err);
        if (s != QRN_OK) {
            qrn_staging_free(&staging);
            return s;
        }
    }
    qrn_staging_free(&w->staging);
    qrn_buffer_release(w->table_memory);
    w->staging = staging;
    w->table_bytes = n_bytes;
    w->table_memory = memory;
    w->shares = w->staging.shared && w->results.shared && w->device->backend->replays;
    for (int i = 0; i < 2; i++) w->bodies[i].shape = (struct qrn_step_shape){0};
    w->head_n = 0;
    return QRN_OK;
}

/* Room for logits, or one of what is drawn, and for two that are brought. */
static enum qrn_status make_results(struct qrn_workspace *w, const struct qrn_model_config *config,
                                    struct qrn_error *err)
{
    struct carver m = {0};
    for (int i = 0; i < 2; i++) {
        m = (struct carver){.base = w->results.bytes};
        (void)carve(&m, QRN_HEAD_ROWS * config->vocab_size, sizeof(float));
        (void)carve(&m, 1, sizeof *w->drawn);
        w->brought = carve(&m, 2, sizeof *w->brought);
        if (!m.base) QRN_TRY(qrn_staging_create(w->device, m.used, &w->results, err));
    }
    return QRN_OK;
}

static size_t ends_bytes(const struct qrn_workspace *w)
{
    return (size_t)(w->n_layers + 1) * sizeof(size_t);
}

static enum qrn_status make_body(struct qrn_workspace *w, struct qrn_body *b, struct qrn_error *err)
{
    b->layer_end = qrn_alloc_zeroed(&w->allocator, ends_bytes(w));
    if (!b->layer_end) return qrn_fail_memory(err, ends_bytes(w), "the layers of a step");
    return qrn_encoder_create(w->device, &b->encoder, err);
}

static enum qrn_status init(struct qrn_workspace *w, const struct qrn_model_config *config,
                            struct qrn_error *err)
{
    const struct extent n = measure(config, w->max_tokens, w->has_head);
    w->n_bytes = n.memory + n.tables;
    w->n_layers = config->n_layers;
    QRN_TRY(qrn_buffer_create(w->device, n.memory, &w->memory, err));
    lay_out(w, config, &(struct carver){.base = qrn_buffer_data(w->memory)});
    if (w->has_head && !qrn_device_host_reads(w->device)) QRN_TRY(make_results(w, config, err));
    QRN_TRY(reserve_tables(w, n.tables, err));
    for (int i = 0; i < 2; i++) QRN_TRY(make_body(w, &w->bodies[i], err));
    return qrn_encoder_create(w->device, &w->head, err);
}

enum qrn_status qrn_workspace_init(struct qrn_workspace *w, const struct qrn_model_config *config,
                                   struct qrn_device *device, int64_t max_tokens, bool has_head,
                                   const struct qrn_host *host, struct qrn_error *err)
{
    *w = (struct qrn_workspace){.device = device,
                                .max_tokens = max_tokens,
                                .has_head = has_head,
                                .allocator = host->allocator};
    const enum qrn_status s = init(w, config, err);
    if (s != QRN_OK) qrn_workspace_free(w);
    return s;
}

void qrn_workspace_free(struct qrn_workspace *w)
{
    for (int i = 0; i < 2; i++) {
        qrn_encoder_destroy(w->bodies[i].encoder);
        qrn_free(&w->allocator, w->bodies[i].layer_end, ends_bytes(w));
    }
    qrn_encoder_destroy(w->head);
    qrn_staging_free(&w->results);
    qrn_staging_free(&w->staging);
    qrn_buffer_release(w->table_memory);
    qrn_buffer_release(w->memory);
    *w = (struct qrn_workspace){0};
}

/* --- what goes to the device and comes from it --- */

enum qrn_status qrn_workspace_place_tables(struct qrn_workspace *w, struct qrn_step_shape shape,
                                           int64_t n_penalised, struct qrn_error *err)
{
    const size_t n_bytes = lay_out_tables(shape, n_penalised, NULL).n_bytes;
    if (n_bytes > w->table_bytes) QRN_TRY(reserve_tables(w, n_bytes + n_bytes / 2, err));
    if (w->table_memory) w->turn = 1 - w->turn;
    w->filled =
        lay_out_tables(shape, n_penalised, w->staging.bytes + (size_t)w->turn * w->table_bytes);
    w->tables = w->filled;
    if (w->table_memory)
        w->tables = lay_out_tables(shape, n_penalised, qrn_buffer_data(w->table_memory));
    if (shape.from_drawn) w->tables.ids = w->drawn->ids;
    return QRN_OK;
}

/* Of tables, what ops of a recording read: all but penalised. */
static size_t recorded_bytes(const struct qrn_tables *t)
{
    return (size_t)((const char *)t->penalised - (const char *)t->head_rows);
}

void qrn_workspace_record_copies(struct qrn_workspace *w, bool draws)
{
    struct qrn_shared_copy tables = {w->tables.head_rows, w->filled.head_rows,
                                     recorded_bytes(&w->filled)},
                           drawn = {0};
    if (!w->shares) return;
    if (draws) drawn = (struct qrn_shared_copy){&w->brought[w->turn], w->drawn, sizeof *w->drawn};
    qrn_encoder_set_copies(qrn_workspace_body(w)->encoder, tables, drawn);
}

static enum qrn_status send(const struct qrn_workspace *w, void *to, const void *from,
                            size_t n_bytes, struct qrn_error *err)
{
    if (n_bytes == 0) return QRN_OK;
    return w->shares
               ? qrn_device_copy_shared(w->device, (struct qrn_shared_copy){to, from, n_bytes}, err)
               : qrn_device_upload(w->device, to, from, n_bytes, err);
}

enum qrn_status qrn_workspace_send_tables(struct qrn_workspace *w, bool is_recorded,
                                          struct qrn_error *err)
{
    const size_t there = is_recorded && w->shares ? recorded_bytes(&w->filled) : 0;
    if (!w->table_memory) return QRN_OK;
    return send(w, (char *)w->tables.head_rows + there, (const char *)w->filled.head_rows + there,
                w->filled.n_bytes - there, err);
}

enum qrn_status qrn_workspace_send_head_rows(struct qrn_workspace *w, struct qrn_error *err)
{
    if (!w->table_memory) return QRN_OK;
    return send(w, w->tables.head_rows, w->filled.head_rows, QRN_HEAD_ROWS * sizeof(int32_t), err);
}

enum qrn_status qrn_workspace_send_ids(struct qrn_workspace *w, int64_t n, struct qrn_error *err)
{
    return send(w, w->tables.ids, w->filled.ids, (size_t)n * sizeof *w->filled.ids, err);
}

enum qrn_status qrn_workspace_take_x(struct qrn_workspace *w, const struct qrn_workspace *from,
                                     size_t n_bytes, struct qrn_error *err)
{
    return qrn_device_upload(w->device, w->x, from->x, n_bytes, err);
}

enum qrn_status qrn_workspace_read(const struct qrn_workspace *w, const void *tensor, void *out,
                                   size_t n_bytes, struct qrn_error *err)
{
    const size_t at = (size_t)((const char *)tensor - (const char *)qrn_buffer_data(w->memory));
    return qrn_buffer_read(w->memory, at, out, n_bytes, err);
}

enum qrn_status qrn_workspace_fetch(struct qrn_workspace *w, const void *tensor, size_t n_bytes,
                                    const void **out, struct qrn_error *err)
{
    *out = w->results.bytes ? w->results.bytes : tensor;
    return w->results.bytes ? qrn_workspace_read(w, tensor, w->results.bytes, n_bytes, err)
                            : QRN_OK;
}

enum qrn_status qrn_workspace_bring_drawn(struct qrn_workspace *w, bool is_recorded,
                                          struct qrn_error *err)
{
    if (!is_recorded) QRN_TRY(send(w, &w->brought[w->turn], w->drawn, sizeof *w->drawn, err));
    return qrn_device_note(w->device, w->turn, err);
}

enum qrn_status qrn_workspace_take_drawn(struct qrn_workspace *w, int turn,
                                         const struct qrn_drawn **out, struct qrn_error *err)
{
    *out = &w->brought[turn];
    return qrn_device_wait_noted(w->device, turn, err);
}

enum qrn_status qrn_workspace_fetch_drawn(struct qrn_workspace *w, bool is_recorded,
                                          const struct qrn_drawn **out, struct qrn_error *err)
{
    const void *drawn = NULL;
    if (w->shares) {
        QRN_TRY(qrn_workspace_bring_drawn(w, is_recorded, err));
        return qrn_workspace_take_drawn(w, w->turn, out, err);
    }
    const enum qrn_status s = qrn_workspace_fetch(w, w->drawn, sizeof *w->drawn, &drawn, err);
    *out = drawn;
    return s;
}
