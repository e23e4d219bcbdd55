/* SPDX-License-Identifier: MIT
 * Matrices: rows that may lie in several tensors, packed for the device piece by piece, so that the
 * file and its image are never in memory together. */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "core/device_impl.h"
#include "formats/blocks.h"
#include "model/load_source.h"

/* The same to an address of the device. */
static enum qrn_status send_rows(struct loader *ld, const struct source *s, int part, int64_t first,
                                 int64_t n, char *to)
{
    for (int64_t done = 0, at, some; done < n; done += some) {
        some = n - done;
        const struct row_run *run = qrn_source_find(s, first + done, &at, &some);
        const size_t bytes = (size_t)some * s->row_bytes[part];
        QRN_TRY(qrn_upload_write(&ld->upload, to,
                                 qrn_source_part(run, part) + (size_t)at * s->row_bytes[part],
                                 bytes, ld->err));
        to += bytes;
    }
    return QRN_OK;
}

static struct qrn_tensor matrix_view(enum qrn_dtype dtype, const void *data, int64_t n_experts,
                                     int64_t n_out, int64_t n_in)
{
    return n_experts ? qrn_tensor_3d(dtype, data, n_experts, n_out, n_in)
                     : qrn_tensor_2d(dtype, data, n_out, n_in);
}

/* --- packing --- */

/* Rows that are packed at once: file pages and copies in use at a time are no more than this, and
 * the call costs little beside it. */
#define PIECE_BYTES ((size_t)8 << 20)

static struct qrn_matmul_pack_args pack_args(const struct source *s, int64_t n_experts,
                                             int64_t n_out, enum qrn_activation_type activation)
{
    struct qrn_tensor views[3] = {{0}};
    for (int i = 0; i < s->n_parts; i++)
        views[i] = matrix_view(s->dtype[i], NULL, n_experts, n_out, s->columns[i]);
    return (struct qrn_matmul_pack_args){
        .w = views[0], .scales = views[1], .biases = views[2], .activation = activation};
}

/* How a matrix is cut: rows of a piece, all pieces but the last whole units. */
struct cut {
    int64_t n_out; /* of one matrix of a stack; 0: rows of all matrices count as one's */
    int64_t unit, most;
};

static struct cut choose_cut(const struct source *s, int64_t n_experts, int64_t n_out)
{
    struct cut c = {.unit = QRN_PACK_ROWS};
    if (n_experts && n_out % QRN_PACK_ROWS) c.unit = c.n_out = n_out;
    const size_t unit_bytes = qrn_source_bytes(s, c.unit);
    const size_t n = unit_bytes && unit_bytes < PIECE_BYTES ? PIECE_BYTES / unit_bytes : 1;
    c.most = (int64_t)n * c.unit;
    return c;
}

struct piece {
    int64_t first, n; /* rows */
    char *copy;       /* room for `most` rows that do not lie together, once needed */
    size_t copy_bytes;
};

/* Ends a piece with the rows that lie together, if they are whole units. */
static void shorten(const struct source *s, const struct cut *c, struct piece *p)
{
    int64_t at, together = p->n;
    (void)qrn_source_find(s, p->first, &at, &together);
    if (together < p->n && together >= c->unit) p->n = together / c->unit * c->unit;
}

/* Part `part` of a piece in place, or copied to *room, which moves on. */
static const void *piece_data(const struct source *s, const struct piece *p, int part, char **room)
{
    int64_t at, together = p->n;
    const struct row_run *run = qrn_source_find(s, p->first, &at, &together);
    const uint8_t *data = qrn_source_part(run, part) + (size_t)at * s->row_bytes[part];
    if (together == p->n && (uintptr_t)data % 4 == 0) return data;
    if (!*room) return NULL;
    char *copy = *room;
    qrn_source_copy(s, part, p->first, p->n, copy);
    *room +=
        ((size_t)p->n * s->row_bytes[part] + QRN_ALIGNMENT - 1) / QRN_ALIGNMENT * QRN_ALIGNMENT;
    return copy;
}

static enum qrn_status set_data(struct loader *ld, const struct source *s, const struct cut *c,
                                struct piece *p, struct qrn_matmul_pack_args *a)
{
    struct qrn_tensor *const views[] = {&a->w, &a->scales, &a->biases};
    char *room = p->copy;
    for (int i = 0; i < s->n_parts; i++) {
        const void *data = piece_data(s, p, i, &room);
        if (!data) {
            p->copy_bytes = qrn_source_bytes(s, c->most) + (size_t)s->n_parts * QRN_ALIGNMENT;
            p->copy = room = qrn_alloc(ld->allocator, p->copy_bytes);
            if (!p->copy) return qrn_fail_memory(ld->err, p->copy_bytes, "rows of weights");
            i = -1;
            continue;
        }
        *views[i] = matrix_view(s->dtype[i], data, c->n_out ? p->n / c->n_out : 0,
                                c->n_out ? c->n_out : p->n, s->columns[i]);
    }
    return QRN_OK;
}

/* Tells the system which of the files' bytes are done with, or needed soon. */
static void tell(struct loader *ld, const struct source *s, int64_t first, int64_t n,
                 void (*what)(const struct qrn_model_files *, const void *, size_t))
{
    for (int64_t done = 0, at, some; done < n; done += some) {
        some = n - done;
        const struct row_run *run = qrn_source_find(s, first + done, &at, &some);
        for (int i = 0; i < s->n_parts; i++)
            what(ld->files, qrn_source_part(run, i) + (size_t)at * s->row_bytes[i],
                 (size_t)some * s->row_bytes[i]);
    }
}

/* The piece in the device's own memory, where it cannot read the host's. */
static enum qrn_status send_piece(struct loader *ld, const struct source *s, const struct cut *c,
                                  const struct piece *p, struct qrn_matmul_pack_args *a)
{
    struct qrn_tensor *const views[] = {&a->w, &a->scales, &a->biases};
    char *to;
    QRN_TRY(qrn_upload_room(&ld->upload,
                            qrn_source_bytes(s, c->most) + (size_t)s->n_parts * QRN_ALIGNMENT, &to,
                            ld->err));
    for (int i = 0; i < s->n_parts; i++) {
        *views[i] = matrix_view(s->dtype[i], to, c->n_out ? p->n / c->n_out : 0,
                                c->n_out ? c->n_out : p->n, s->columns[i]);
        QRN_TRY(send_rows(ld, s, i, p->first, p->n, to));
        to += ((size_t)p->n * s->row_bytes[i] + QRN_ALIGNMENT - 1) / QRN_ALIGNMENT * QRN_ALIGNMENT;
    }
    return qrn_upload_flush(&ld->upload, ld->err);
}

static enum qrn_status pack_piece(struct loader *ld, const struct source *s, const struct cut *c,
                                  struct piece *p, enum qrn_activation_type activation, char **out)
{
    struct qrn_matmul_pack_args a =
        pack_args(s, c->n_out ? p->n / c->n_out : 0, c->n_out ? c->n_out : p->n, activation);
    struct qrn_device *dev = ld->stage->device;
    size_t n_bytes;
    QRN_TRY(ld->host_reads ? set_data(ld, s, c, p, &a) : send_piece(ld, s, c, p, &a));
    QRN_TRY(qrn_matmul_packed_bytes(dev, &a, &n_bytes, ld->err));
    a.packed = qrn_tensor_1d(QRN_U8, *out, (int64_t)n_bytes);
    QRN_TRY(qrn_op_queue(dev, QRN_OP_matmul_pack, &a, ld->err));
    *out += n_bytes;
    tell(ld, s, p->first, p->n, qrn_model_files_release);
    return qrn_load_advance(ld, qrn_source_bytes(s, p->n));
}

static enum qrn_status pack(struct loader *ld, const struct source *s, int64_t n_experts,
                            int64_t n_out, enum qrn_activation_type activation, char *out)
{
    const struct cut c = choose_cut(s, n_experts, n_out);
    const int64_t rows = (n_experts ? n_experts : 1) * n_out;
    struct piece p = {.n = 0};
    enum qrn_status status = QRN_OK;
    for (; p.first < rows && status == QRN_OK; p.first += p.n) {
        p.n = rows - p.first < c.most ? rows - p.first : c.most;
        shorten(s, &c, &p);
        const int64_t next = p.first + p.n;
        tell(ld, s, next, rows - next < c.most ? rows - next : c.most, qrn_model_files_prefetch);
        status = pack_piece(ld, s, &c, &p, activation, &out);
    }
    qrn_free(ld->allocator, p.copy, p.copy_bytes);
    return status;
}

/* --- matrices --- */

/* Rows as in the file in the device's memory, some at a time. */
static enum qrn_status send_matrix(struct loader *ld, const struct source *s, int64_t rows,
                                   char *const to[3])
{
    const size_t row_bytes = qrn_source_bytes(s, 1);
    const int64_t most = row_bytes < PIECE_BYTES ? (int64_t)(PIECE_BYTES / row_bytes) : 1;
    for (int64_t first = 0, n; first < rows; first += n) {
        n = rows - first < most ? rows - first : most;
        const int64_t next = first + n;
        tell(ld, s, next, rows - next < most ? rows - next : most, qrn_model_files_prefetch);
        for (int i = 0; i < s->n_parts; i++)
            QRN_TRY(send_rows(ld, s, i, first, n, to[i] + (size_t)first * s->row_bytes[i]));
        tell(ld, s, first, n, qrn_model_files_release);
        QRN_TRY(qrn_load_advance(ld, qrn_source_bytes(s, n)));
    }
    return QRN_OK;
}

/* A matrix of rows as in the file.  Where the host reads: in place if they lie together and well
 * aligned, else copied. */
static enum qrn_status rows_matrix(struct loader *ld, const struct source *s, int64_t n_experts,
                                   int64_t n_out, size_t alignment, struct qrn_matrix *out)
{
    const int64_t rows = (n_experts ? n_experts : 1) * n_out;
    struct qrn_tensor views[3] = {{0}};
    char *sent[3] = {NULL};
    for (int i = 0; i < s->n_parts; i++) {
        const uint8_t *data =
            qrn_source_part(s->runs, i) + (size_t)s->runs[0].first * s->row_bytes[i];
        if (!ld->host_reads) {
            sent[i] = qrn_load_take(ld, (size_t)rows * s->row_bytes[i]);
            data = (const uint8_t *)sent[i];
        } else if (s->n_runs > 1 || (uintptr_t)data % alignment) {
            char *copy = qrn_load_take(ld, (size_t)rows * s->row_bytes[i]);
            if (copy) qrn_source_copy(s, i, 0, rows, copy);
            data = (const uint8_t *)copy;
        }
        views[i] = matrix_view(s->dtype[i], data, n_experts, n_out, s->columns[i]);
    }
    out->w = views[0];
    out->scales = views[1];
    out->biases = views[2];
    return !ld->host_reads && ld->room->memory ? send_matrix(ld, s, rows, sent) : QRN_OK;
}

/* A small matrix of blocks as float32, for devices with memory of their own: what products there are
 * bound by is the number of launches and their latency, and plain floats take less of both. */
static enum qrn_status float_matrix(struct loader *ld, const struct source *s, int64_t rows,
                                    struct qrn_matrix *out)
{
    const size_t row_bytes = (size_t)s->columns[0] * sizeof(float);
    const size_t n_room = qrn_source_row_room(s);
    char *to = qrn_load_take(ld, (size_t)rows * row_bytes);
    *out = (struct qrn_matrix){.w = qrn_tensor_2d(QRN_F32, to, rows, s->columns[0]),
                               .activation = QRN_ACT_F32,
                               .many = QRN_ACT_F32,
                               .layout = QRN_LAYOUT_ROWS};
    if (!ld->room->memory) return QRN_OK;
    char *room = qrn_alloc(ld->allocator, n_room + row_bytes);
    if (!room) return qrn_fail_memory(ld->err, n_room + row_bytes, "a row of weights");
    float *values = (float *)(void *)(room + n_room);
    enum qrn_status status = QRN_OK;
    for (int64_t i = 0; i < rows && status == QRN_OK; i++, to += row_bytes) {
        qrn_source_decode(s, i, room, values);
        status = qrn_upload_write(&ld->upload, to, values, row_bytes, ld->err);
    }
    qrn_free(ld->allocator, room, n_room + row_bytes);
    return status == QRN_OK ? qrn_load_advance(ld, qrn_source_bytes(s, rows)) : status;
}

/* How activations enter products with weights of the type, if the device has such products. */
static enum qrn_activation_type wanted_activation(const struct loader *ld, enum qrn_dtype dtype,
                                                  int64_t n_in, enum matrix_use use)
{
    if (ld->options->exact || use != BIG) return QRN_ACT_F32;
    if (dtype == QRN_BF16) return QRN_ACT_BF16;
    const bool plain = qrn_dtype_info(dtype)->block_elements == 1;
    return !plain && n_in % 32 == 0 ? QRN_ACT_Q8 : QRN_ACT_F32;
}

/* Whether the device multiplies with m, of rows rounded already where they are whole blocks. */
static bool multiplies(const struct loader *ld, const struct qrn_matrix *m, bool by_expert)
{
    const int64_t n_in = m->w.shape[m->w.n_dims - 1], n_out = m->w.shape[m->w.n_dims - 2];
    enum qrn_dtype type = qrn_matmul_x_dtype(m->w.dtype, m->activation);
    if (n_in % qrn_dtype_info(type)->block_elements) type = QRN_F32;
    struct qrn_tensor w = m->w;
    if (!w.data) w.data = &type; /* kernels are asked before there is memory */
    w.data = (char *)w.data - (uintptr_t)w.data % QRN_ALIGNMENT;
    const struct qrn_matmul_args one = {.w = w,
                                        .scales = m->scales,
                                        .biases = m->biases,
                                        .x = qrn_tensor_2d(type, NULL, 1, n_in),
                                        .out = qrn_tensor_2d(QRN_F32, NULL, 1, n_out),
                                        .activation = m->activation,
                                        .layout = m->layout};
    const struct qrn_matmul_id_args chosen = {.w = w,
                                              .scales = m->scales,
                                              .biases = m->biases,
                                              .x = qrn_tensor_3d(type, NULL, 1, 1, n_in),
                                              .ids = qrn_tensor_2d(QRN_I32, NULL, 1, 1),
                                              .out = qrn_tensor_3d(QRN_F32, NULL, 1, 1, n_out),
                                              .activation = m->activation,
                                              .layout = m->layout};
    const struct qrn_kernel *kernel;
    const struct qrn_device *dev = ld->stage->device;
    return by_expert ? qrn_kernel_choose(dev, QRN_OP_matmul_id, &chosen, &kernel, NULL) == QRN_OK
                     : qrn_kernel_choose(dev, QRN_OP_matmul, &one, &kernel, NULL) == QRN_OK;
}

/* How activations enter calls with many tokens: as bf16 where the device rounds packed weights with them,
 * which shows in its taking no float32 ones. */
static enum qrn_activation_type many_activation(const struct loader *ld, const struct qrn_matrix *m,
                                                bool by_expert)
{
    struct qrn_matrix other = *m;
    if (!ld->stage->rounds_many || m->activation != QRN_ACT_Q8 || m->layout != QRN_LAYOUT_PACKED)
        return m->activation;
    other.activation = QRN_ACT_F32;
    if (multiplies(ld, &other, by_expert)) return QRN_ACT_Q8;
    other.activation = QRN_ACT_BF16;
    return multiplies(ld, &other, by_expert) ? QRN_ACT_BF16 : QRN_ACT_Q8;
}

/* The layout and the activations of a matrix; *bytes is 0 where it has no packed form.  Rounded
 * activations where the device has kernels for them. */
static enum qrn_status choose_form(struct loader *ld, const struct source *s, int64_t n_experts,
                                   int64_t n_out, enum matrix_use use, struct qrn_matrix *m,
                                   size_t *bytes)
{
    m->activation = wanted_activation(ld, s->dtype[0], s->columns[0], use);
    for (;;) {
        const struct qrn_matmul_pack_args query = pack_args(s, n_experts, n_out, m->activation);
        QRN_TRY(qrn_matmul_packed_bytes(ld->stage->device, &query, bytes, ld->err));
        m->layout = *bytes ? QRN_LAYOUT_PACKED : QRN_LAYOUT_ROWS;
        m->w = query.w;
        if (*bytes) m->w.n_bytes = *bytes;
        m->scales = *bytes ? (struct qrn_tensor){0} : query.scales;
        m->biases = *bytes ? (struct qrn_tensor){0} : query.biases;
        if (m->activation == QRN_ACT_F32 || multiplies(ld, m, n_experts > 0)) break;
        m->activation = QRN_ACT_F32;
    }
    m->many = many_activation(ld, m, n_experts > 0);
    return QRN_OK;
}

enum qrn_status qrn_load_matrix(struct loader *ld, const struct row_run *runs, size_t n_runs,
                                int64_t n_experts, int64_t n_out, int64_t n_in, enum matrix_use use,
                                struct qrn_matrix *out)
{
    struct qrn_weights *w = ld->weights;
    struct source s;
    const int64_t rows = (n_experts ? n_experts : 1) * n_out;
    QRN_TRY(qrn_source_describe(ld, runs, n_runs, rows, n_in, &s));
    struct qrn_matrix m = {.layout = QRN_LAYOUT_ROWS};
    size_t bytes;
    QRN_TRY(choose_form(ld, &s, n_experts, n_out, use, &m, &bytes));
    const bool is_plain = qrn_dtype_info(s.dtype[0])->block_elements == 1 && s.n_parts == 1;
    if (use == SMALL && !n_experts && !ld->host_reads && !is_plain) {
        QRN_TRY(float_matrix(ld, &s, rows, &m));
        bytes = (size_t)rows * (size_t)n_in * sizeof(float);
    } else if (bytes) {
        m.w.data = qrn_load_take(ld, bytes);
        if (ld->room->memory) QRN_TRY(pack(ld, &s, n_experts, n_out, m.activation, m.w.data));
    } else {
        QRN_TRY(rows_matrix(ld, &s, n_experts, n_out, 4, &m));
        bytes = qrn_source_bytes(&s, rows);
        if (ld->host_reads) QRN_TRY(qrn_load_advance(ld, bytes));
    }
    w->n_parameters += rows * n_in;
    w->n_bytes += bytes;
    w->bytes_per_token +=
        n_experts ? bytes / (size_t)n_experts * (size_t)ld->config->n_experts_used : bytes;
    w->dtypes |= 1ull << s.dtype[0];
    *out = m;
    return QRN_OK;
}

/* Whether the device can take rows out of a packed matrix. */
static bool gathers(struct loader *ld, const struct qrn_matrix *m)
{
    int32_t no_ids[1] = {0};
    float no_rows[1] = {0};
    const struct qrn_embedding_args a = {.table = m->w,
                                         .ids = qrn_tensor_1d(QRN_I32, no_ids, 0),
                                         .out = qrn_tensor_2d(QRN_F32, no_rows, 0, m->w.shape[1]),
                                         .layout = m->layout};
    const struct qrn_kernel *kernel;
    return qrn_kernel_choose(ld->stage->device, QRN_OP_embedding, &a, &kernel, NULL) == QRN_OK;
}

enum qrn_status qrn_load_embedding(struct loader *ld, const struct row_run *run,
                                   const struct qrn_matrix *tied, int64_t n_out, int64_t n_in,
                                   struct qrn_matrix *out)
{
    struct source s;
    const bool is_alone = ld->options->n_stages == 1;
    if (is_alone && tied && tied->layout == QRN_LAYOUT_PACKED && gathers(ld, tied)) {
        *out = *tied;
        return QRN_OK;
    }
    qrn_load_enter(ld, 0);
    QRN_TRY(qrn_source_describe(ld, run, 1, n_out, n_in, &s));
    *out = (struct qrn_matrix){.layout = QRN_LAYOUT_ROWS};
    /* where the host reads, it stays in the file */
    if (!ld->host_reads) ld->weights->n_bytes += qrn_source_bytes(&s, n_out);
    const size_t before = ld->room->used;
    QRN_TRY(rows_matrix(ld, &s, 0, n_out, 1, out));
    ld->weights->of_embedding = is_alone ? ld->room->used - before : 0;
    qrn_load_enter(ld, ld->options->n_stages - 1);
    return QRN_OK;
}

enum qrn_status qrn_load_named_matrix(struct loader *ld, const char *name, int64_t n_out,
                                      int64_t n_in, enum matrix_use use, struct qrn_matrix *out)
{
    struct row_run run;
    QRN_TRY(qrn_load_run(ld, name, &run));
    return qrn_load_matrix(ld, &run, 1, 0, n_out, n_in, use, out);
}
