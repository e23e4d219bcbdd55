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

static enum qrn_status new_buffer(struct loader *ld, size_t n_bytes, struct qrn_buffer **out)
{
    struct qrn_weights *w = ld->weights;
    if (w->n_buffers == w->n_buffers_reserved) {
        const size_t want = w->n_buffers_reserved * 2 + 64;
        void *bigger =
            qrn_realloc(ld->allocator, w->buffers, w->n_buffers_reserved * sizeof *w->buffers,
                        want * sizeof *w->buffers);
        if (!bigger) return qrn_fail_memory(ld->err, want * sizeof *w->buffers, "weights");
        w->buffers = bigger;
        w->n_buffers_reserved = want;
    }
    QRN_TRY(qrn_buffer_create(ld->options->device, n_bytes, out, ld->err));
    w->buffers[w->n_buffers++] = *out;
    return QRN_OK;
}

static enum qrn_status advance(struct loader *ld, size_t n_bytes)
{
    ld->bytes_done += n_bytes;
    const struct qrn_load_options *o = ld->options;
    if (!o->progress || !ld->bytes_total) return QRN_OK;
    const double done = (double)ld->bytes_done / (double)ld->bytes_total;
    if (o->progress(o->progress_user, done < 1.0 ? done : 1.0)) return QRN_OK;
    return qrn_fail(ld->err, QRN_ERR_CANCELLED, "opening the model was cancelled");
}

static int64_t n_elements(const struct qrn_archive_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->n_dims; i++) n *= t->shape[i];
    return n;
}

static int64_t row_elements(const struct qrn_archive_tensor *t)
{
    return t->n_dims ? t->shape[t->n_dims - 1] : 1;
}

static int64_t n_rows(const struct qrn_archive_tensor *t)
{
    const int64_t k = row_elements(t);
    return k ? n_elements(t) / k : 0;
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
    run.n = n_rows(run.tensor);
    *out = run;
    return QRN_OK;
}

enum qrn_status qrn_load_vector(struct loader *ld, const char *name, int64_t n, enum change change,
                                struct qrn_tensor *out)
{
    const struct qrn_archive_tensor *t;
    struct qrn_buffer *buffer;
    QRN_TRY(qrn_load_need(ld, name, &t));
    QRN_TRY(need_values(ld, t));
    if (n_elements(t) != n)
        return qrn_fail(ld->err, QRN_ERR_FORMAT,
                        "tensor \"%s\" has %" PRId64 " elements, wants %" PRId64, name,
                        n_elements(t), n);
    QRN_TRY(new_buffer(ld, (size_t)n * sizeof(float), &buffer));
    float *values = qrn_buffer_data(buffer);
    qrn_decoder(t->dtype)(t->data, values, (size_t)n);
    for (int64_t i = 0; i < n; i++) {
        if (change == PLUS_ONE) values[i] = 1.0f + values[i];
        if (change == MINUS_EXP) values[i] = (float)-exp((double)values[i]);
    }
    ld->weights->n_parameters += n;
    ld->weights->n_bytes += (size_t)n * sizeof(float);
    ld->weights->bytes_per_token += (size_t)n * sizeof(float);
    *out = qrn_tensor_1d(QRN_F32, values, n);
    return advance(ld, t->n_bytes);
}

/* The element type of MLX codes, from how many words a row of n_in values takes. */
static enum qrn_dtype mlx_type(int64_t words, int64_t n_in)
{
    static const struct {
        int bits;
        enum qrn_dtype dtype;
    } types[] = {{2, QRN_MLX_Q2}, {3, QRN_MLX_Q3}, {4, QRN_MLX_Q4},
                 {5, QRN_MLX_Q5}, {6, QRN_MLX_Q6}, {8, QRN_MLX_Q8}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (words * 32 == n_in * types[i].bits) return types[i].dtype;
    return QRN_DTYPE_COUNT;
}

static enum qrn_status check_run(struct loader *ld, const struct row_run *run, int64_t n_in,
                                 enum qrn_dtype *dtype)
{
    const struct qrn_archive_tensor *t = run->tensor;
    *dtype = run->scales ? mlx_type(row_elements(t), n_in) : t->dtype;
    const bool whole =
        *dtype != QRN_DTYPE_COUNT && n_in % qrn_dtype_info(*dtype)->block_elements == 0;
    if (!whole || (!run->scales && row_elements(t) != n_in))
        return qrn_fail(ld->err, QRN_ERR_FORMAT,
                        "tensor \"%s\" has rows of %" PRId64 " (%s), wants %" PRId64 " values",
                        t->name, row_elements(t), t->type_name, n_in);
    if (run->first < 0 || run->n < 0 || run->first > n_rows(t) - run->n)
        return qrn_fail(ld->err, QRN_ERR_FORMAT,
                        "tensor \"%s\" has %" PRId64 " rows, wants %" PRId64, t->name, n_rows(t),
                        run->first + run->n);
    if (!run->scales) return QRN_OK;
    const struct qrn_archive_tensor *both[] = {run->scales, run->biases};
    for (int i = 0; i < 2; i++) {
        const int64_t groups = row_elements(both[i]);
        if (groups < 1 || n_in % groups || n_rows(both[i]) != n_rows(t) ||
            groups != row_elements(run->scales) || both[i]->dtype != run->scales->dtype)
            return qrn_fail(ld->err, QRN_ERR_FORMAT, "tensor \"%s\" does not fit \"%s\"",
                            both[i]->name, t->name);
    }
    const int64_t group = n_in / row_elements(run->scales);
    if (group != 32 && group != 64 && group != 128)
        return qrn_fail(ld->err, QRN_ERR_UNSUPPORTED,
                        "tensor \"%s\" has groups of %" PRId64 ", wants 32, 64 or 128", t->name,
                        group);
    return QRN_OK;
}

/* Rows of one part (codes, scales or biases) of all runs: in place if they lie together and well
 * aligned, else copied. */
static enum qrn_status gather(struct loader *ld, const struct row_run *runs, size_t n_runs,
                              int part, size_t row_bytes, size_t alignment, const void **out)
{
    size_t total = 0;
    for (size_t i = 0; i < n_runs; i++) total += (size_t)runs[i].n * row_bytes;
    char *dst = NULL;
    for (size_t i = 0; i < n_runs; i++) {
        const struct qrn_archive_tensor *const parts[] = {runs[i].tensor, runs[i].scales,
                                                          runs[i].biases};
        const uint8_t *src = parts[part]->data + (size_t)runs[i].first * row_bytes;
        if (n_runs == 1 && (uintptr_t)src % alignment == 0) {
            *out = src;
            return QRN_OK;
        }
        if (!dst) {
            struct qrn_buffer *buffer;
            QRN_TRY(new_buffer(ld, total ? total : 1, &buffer));
            *out = dst = qrn_buffer_data(buffer);
        }
        memcpy(dst, src, (size_t)runs[i].n * row_bytes);
        dst += (size_t)runs[i].n * row_bytes;
    }
    return QRN_OK;
}

static struct qrn_tensor matrix_view(enum qrn_dtype dtype, const void *data, int64_t n_experts,
                                     int64_t n_out, int64_t n_in)
{
    return n_experts ? qrn_tensor_3d(dtype, data, n_experts, n_out, n_in)
                     : qrn_tensor_2d(dtype, data, n_out, n_in);
}

/* A matrix of rows as in the file. */
static enum qrn_status rows_matrix(struct loader *ld, const struct row_run *runs, size_t n_runs,
                                   int64_t n_experts, int64_t n_out, int64_t n_in, size_t alignment,
                                   struct qrn_matrix *out)
{
    enum qrn_dtype dtype = QRN_DTYPE_COUNT;
    int64_t rows = 0;
    for (size_t i = 0; i < n_runs; i++) {
        enum qrn_dtype one;
        QRN_TRY(check_run(ld, &runs[i], n_in, &one));
        if (i &&
            (one != dtype || !runs[i].scales != !runs[0].scales ||
             (runs[i].scales && (runs[i].scales->dtype != runs[0].scales->dtype ||
                                 row_elements(runs[i].scales) != row_elements(runs[0].scales)))))
            return qrn_fail(ld->err, QRN_ERR_UNSUPPORTED,
                            "tensors \"%s\" and \"%s\" belong together but are of other types",
                            runs[0].tensor->name, runs[i].tensor->name);
        dtype = one;
        rows += runs[i].n;
    }
    const int64_t want = (n_experts ? n_experts : 1) * n_out;
    if (rows != want)
        return qrn_fail(ld->err, QRN_ERR_FORMAT,
                        "tensor \"%s\" has %" PRId64 " rows, wants %" PRId64, runs[0].tensor->name,
                        rows, want);
    const void *data;
    size_t row_bytes;
    if (!qrn_row_bytes(dtype, n_in, &row_bytes))
        return qrn_fail(ld->err, QRN_ERR_FORMAT, "tensor \"%s\" is too large",
                        runs[0].tensor->name);
    QRN_TRY(gather(ld, runs, n_runs, 0, row_bytes, alignment, &data));
    *out = (struct qrn_matrix){.w = matrix_view(dtype, data, n_experts, n_out, n_in)};
    if (runs[0].scales) {
        const enum qrn_dtype type = runs[0].scales->dtype;
        const int64_t groups = row_elements(runs[0].scales);
        const size_t bytes = (size_t)groups * (size_t)qrn_dtype_info(type)->block_bytes;
        QRN_TRY(gather(ld, runs, n_runs, 1, bytes, alignment, &data));
        out->scales = matrix_view(type, data, n_experts, n_out, groups);
        QRN_TRY(gather(ld, runs, n_runs, 2, bytes, alignment, &data));
        out->biases = matrix_view(type, data, n_experts, n_out, groups);
    }
    return QRN_OK;
}

static enum qrn_activation_type choose_activation(const struct loader *ld, enum qrn_dtype dtype,
                                                  int64_t n_in, enum matrix_use use)
{
    if (ld->options->exact || use != BIG) return QRN_ACT_F32;
    if (dtype == QRN_BF16) return QRN_ACT_BF16;
    const bool plain = qrn_dtype_info(dtype)->block_elements == 1;
    return !plain && n_in % 32 == 0 ? QRN_ACT_Q8 : QRN_ACT_F32;
}

/* Frees the buffers made since there were n: what rows were gathered into before packing. */
static void drop_buffers(struct loader *ld, size_t n, size_t end)
{
    struct qrn_weights *w = ld->weights;
    for (size_t i = n; i < end; i++) qrn_buffer_release(w->buffers[i]);
    memmove(w->buffers + n, w->buffers + end, (w->n_buffers - end) * sizeof *w->buffers);
    w->n_buffers -= end - n;
}

static enum qrn_status pack(struct loader *ld, struct qrn_matrix *m, size_t *n_bytes)
{
    struct qrn_matmul_pack_args a = {
        .w = m->w, .scales = m->scales, .biases = m->biases, .activation = m->activation};
    struct qrn_device *dev = ld->options->device;
    struct qrn_buffer *buffer;
    QRN_TRY(qrn_matmul_packed_bytes(dev, &a, n_bytes, ld->err));
    if (*n_bytes == 0) return QRN_OK;
    QRN_TRY(new_buffer(ld, *n_bytes, &buffer));
    a.packed = qrn_tensor_1d(QRN_U8, qrn_buffer_data(buffer), (int64_t)*n_bytes);
    QRN_TRY(qrn_matmul_pack(dev, &a, ld->err));
    m->w.data = a.packed.data;
    m->w.n_bytes = *n_bytes;
    m->scales = m->biases = (struct qrn_tensor){0};
    m->layout = QRN_LAYOUT_PACKED;
    return QRN_OK;
}

static size_t tensor_bytes(const struct qrn_matrix *m)
{
    return m->w.n_bytes + (m->scales.n_dims ? m->scales.n_bytes + m->biases.n_bytes : 0);
}

enum qrn_status qrn_load_matrix(struct loader *ld, const struct row_run *runs, size_t n_runs,
                                int64_t n_experts, int64_t n_out, int64_t n_in, enum matrix_use use,
                                struct qrn_matrix *out)
{
    struct qrn_matrix m;
    struct qrn_weights *w = ld->weights;
    const size_t before = w->n_buffers;
    size_t packed_bytes;
    QRN_TRY(rows_matrix(ld, runs, n_runs, n_experts, n_out, n_in, 4, &m));
    const size_t gathered = w->n_buffers, file_bytes = tensor_bytes(&m);
    m.activation = choose_activation(ld, m.w.dtype, n_in, use);
    QRN_TRY(pack(ld, &m, &packed_bytes));
    if (packed_bytes) drop_buffers(ld, before, gathered);
    const int64_t n = (n_experts ? n_experts : 1) * n_out * n_in;
    const size_t bytes = packed_bytes ? packed_bytes : file_bytes;
    w->n_parameters += n;
    w->n_bytes += bytes;
    w->bytes_per_token +=
        n_experts ? bytes / (size_t)n_experts * (size_t)ld->config->n_experts_used : bytes;
    w->dtypes |= 1ull << m.w.dtype;
    *out = m;
    return advance(ld, file_bytes);
}

enum qrn_status qrn_load_rows(struct loader *ld, const struct row_run *run, int64_t n_out,
                              int64_t n_in, struct qrn_matrix *out)
{
    return rows_matrix(ld, run, 1, 0, n_out, n_in, 1, out);
}

enum qrn_status qrn_load_named_matrix(struct loader *ld, const char *name, int64_t n_out,
                                      int64_t n_in, enum matrix_use use, struct qrn_matrix *out)
{
    struct row_run run;
    QRN_TRY(qrn_load_run(ld, name, &run));
    return qrn_load_matrix(ld, &run, 1, 0, n_out, n_in, use, out);
}
