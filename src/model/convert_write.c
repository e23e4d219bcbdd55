/* SPDX-License-Identifier: MIT
 * From the list of tensors to their bytes: rows are gathered, decoded, changed and encoded by all
 * cores, a wave at a time; while a wave is made, the one before is written. */
#include <fenv.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>
#include "base/error.h"
#include "base/memory.h"
#include "base/threads.h"
#include "formats/blocks.h"
#include "model/convert.h"

enum {
    UNIT_VALUES = 1 << 14, /* a thread takes as many rows at a time */
    WAVE_UNITS = 16        /* for each thread */
};

struct wave {
    const struct qrn_convert_tensor *tensor;
    int64_t first, n; /* rows */
    int64_t unit;     /* rows taken at a time */
    size_t row_bytes; /* of the output */
    uint8_t *bytes;
};

struct job {
    const struct qrn_convert *list;
    struct qrn_gguf_writer *writer;
    struct wave wave, previous; /* previous.n is 0 when it is written */
    _Atomic int64_t next;       /* row of the wave that nobody has taken */
    float *scratch;             /* scratch_floats for each thread */
    size_t scratch_floats, row_floats, group_floats;
    uint8_t *buffers[2];
    size_t buffer_bytes;
    struct qrn_thread_pool pool;
};

/* --- one row --- */

static void decode_row(const struct qrn_row_run *run, int64_t row, float *scratch, size_t n_scratch,
                       float *out)
{
    const uint8_t *data = run->tensor->data + (size_t)row * run->row_bytes;
    if (!run->scales) {
        qrn_decoder(run->dtype)(data, out, (size_t)run->n_cols);
        return;
    }
    const size_t n_groups = (size_t)(run->n_cols / run->group);
    const struct qrn_archive_tensor *const both[] = {run->scales, run->biases};
    for (int i = 0; i < 2; i++) {
        const size_t bytes = n_groups * (size_t)qrn_dtype_info(both[i]->dtype)->block_bytes;
        qrn_decoder(both[i]->dtype)(both[i]->data + (size_t)row * bytes,
                                    scratch + (size_t)i * n_scratch, n_groups);
    }
    qrn_decode_mlx(run->dtype, data, scratch, scratch + n_scratch, run->group, out,
                   (size_t)run->n_cols);
}

/* Value heads of columns from grouped to tiled order: head kh * r + v goes to v * n_k + kh. */
static void tile_columns(const struct qrn_convert *list, int64_t columns, const float *in,
                         float *out)
{
    const int64_t n = list->n_k_heads, r = list->n_v_heads / n;
    for (int64_t h = 0; h < list->n_v_heads; h++)
        memcpy(out + (h % r * n + h / r) * columns, in + h * columns,
               (size_t)columns * sizeof *out);
}

static void change_row(enum qrn_convert_change change, float *x, int64_t n)
{
    switch (change) {
    case QRN_AS_IS:
        break;
    case QRN_PLUS_ONE:
        for (int64_t i = 0; i < n; i++) x[i] = 1.0f + x[i];
        break;
    case QRN_MINUS_EXP:
        for (int64_t i = 0; i < n; i++) x[i] = (float)-exp((double)x[i]);
        break;
    }
}

/* The run that has a row of the output. */
static const struct qrn_row_run *find_run(const struct qrn_convert *list,
                                          const struct qrn_convert_tensor *t, int64_t row)
{
    size_t low = t->first_run, high = t->first_run + t->n_runs;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (list->runs[middle].at <= row)
            low = middle;
        else
            high = middle;
    }
    return &list->runs[low];
}

static void make_row(const struct job *job, int64_t row, float *scratch, uint8_t *out)
{
    const struct qrn_convert_tensor *t = job->wave.tensor;
    const struct qrn_row_run *run = find_run(job->list, t, row);
    row += run->first - run->at;
    if (t->is_copy) {
        memcpy(out, run->tensor->data + (size_t)row * run->row_bytes, run->row_bytes);
        return;
    }
    float *x = scratch, *other = scratch + job->row_floats;
    decode_row(run, row, other + job->row_floats, job->group_floats, x);
    if (t->head_columns) {
        tile_columns(job->list, t->head_columns, x, other);
        x = other;
    }
    change_row(t->change, x, t->n_cols);
    qrn_encoder(t->dtype)(x, out, (size_t)t->n_cols);
}

/* --- a wave --- */

static void write_previous(struct job *job)
{
    const struct wave *p = &job->previous;
    if (p->n) qrn_gguf_write_data(job->writer, p->bytes, (size_t)p->n * p->row_bytes);
}

static void work(void *arg, int i)
{
    struct job *job = arg;
    const struct wave *wave = &job->wave;
    float *scratch = job->scratch + (size_t)i * job->scratch_floats;
    fenv_t mode;
    if (i == 0) write_previous(job);
    /* Encoders want subnormals and rounding to nearest, whatever the caller's thread has. */
    fegetenv(&mode);
    fesetenv(FE_DFL_ENV);
    for (int64_t row; (row = atomic_fetch_add(&job->next, wave->unit)) < wave->n;)
        for (int64_t k = row; k < row + wave->unit && k < wave->n; k++)
            make_row(job, wave->first + k, scratch, wave->bytes + (size_t)k * wave->row_bytes);
    fesetenv(&mode);
}

static int64_t unit_of(const struct qrn_convert_tensor *t)
{
    return t->n_cols < UNIT_VALUES ? UNIT_VALUES / t->n_cols : 1;
}

static int64_t wave_rows(const struct job *job, const struct qrn_convert_tensor *t)
{
    const int64_t n = unit_of(t) * WAVE_UNITS * job->pool.n_threads;
    return n < t->n_rows ? n : t->n_rows;
}

static size_t row_bytes(const struct qrn_convert_tensor *t)
{
    size_t n = 0;
    (void)qrn_row_bytes(t->dtype, t->n_cols, &n); /* the plan has made it fit */
    return n;
}

static enum qrn_status allocate(struct job *job, struct qrn_error *err)
{
    const struct qrn_convert *list = job->list;
    for (size_t i = 0; i < list->n_tensors; i++) {
        const struct qrn_convert_tensor *t = &list->tensors[i];
        if (!t->n_rows) continue;
        const size_t bytes = (size_t)wave_rows(job, t) * row_bytes(t);
        if (bytes > job->buffer_bytes) job->buffer_bytes = bytes;
        if (!t->is_copy && (size_t)t->n_cols > job->row_floats) job->row_floats = (size_t)t->n_cols;
    }
    for (size_t i = 0; i < list->n_runs; i++) {
        const struct qrn_row_run *run = &list->runs[i];
        const size_t n = run->scales ? (size_t)(run->n_cols / run->group) : 0;
        if (n > job->group_floats) job->group_floats = n;
    }
    job->scratch_floats = 2 * (job->row_floats + job->group_floats);
    const size_t bytes = (size_t)job->pool.n_threads * job->scratch_floats * sizeof *job->scratch;
    job->scratch = qrn_alloc(&list->allocator, bytes);
    if (!job->scratch) return qrn_fail_memory(err, bytes, "rows of tensors");
    for (int i = 0; i < 2; i++) {
        job->buffers[i] = qrn_alloc(&list->allocator, job->buffer_bytes);
        if (!job->buffers[i]) return qrn_fail_memory(err, job->buffer_bytes, "rows of tensors");
    }
    return QRN_OK;
}

static enum qrn_status run_waves(struct job *job, qrn_progress_fn progress, void *progress_user,
                                 struct qrn_error *err)
{
    const struct qrn_convert *list = job->list;
    double total = 0, done = 0;
    for (size_t i = 0; i < list->n_tensors; i++)
        total += (double)list->tensors[i].n_rows * (double)list->tensors[i].n_cols;
    int turn = 0;
    for (size_t i = 0; i < list->n_tensors; i++) {
        const struct qrn_convert_tensor *t = &list->tensors[i];
        for (int64_t first = 0; first < t->n_rows; first += job->wave.n) {
            const int64_t most = wave_rows(job, t), left = t->n_rows - first;
            job->wave = (struct wave){.tensor = t,
                                      .first = first,
                                      .n = most < left ? most : left,
                                      .unit = unit_of(t),
                                      .row_bytes = row_bytes(t),
                                      .bytes = job->buffers[turn ^= 1]};
            atomic_store(&job->next, 0);
            job->pool.run(job->pool.user, job->pool.n_threads, work, job);
            job->previous = job->wave;
            done += (double)job->wave.n * (double)t->n_cols;
            if (progress && !progress(progress_user, done < total ? done / total : 1))
                return qrn_fail(err, QRN_ERR_CANCELLED, "quantising was cancelled");
            if (qrn_gguf_writer_status(job->writer) != QRN_OK) return QRN_OK;
        }
    }
    write_previous(job);
    return QRN_OK;
}

enum qrn_status qrn_convert_write(const struct qrn_convert *list, qrn_progress_fn progress,
                                  void *progress_user, struct qrn_gguf_writer *w,
                                  struct qrn_error *err)
{
    struct job job = {.list = list, .writer = w};
    for (size_t i = 0; i < list->n_tensors; i++)
        qrn_gguf_write_tensor(w, list->tensors[i].name, list->tensors[i].dtype,
                              list->tensors[i].n_dims, list->tensors[i].shape);
    enum qrn_status s = qrn_threads_create(qrn_n_cores(), &list->allocator, &job.pool, err);
    if (s == QRN_ERR_DEVICE) s = qrn_threads_create(1, &list->allocator, &job.pool, err);
    if (s != QRN_OK) return s;
    s = allocate(&job, err);
    if (s == QRN_OK) s = run_waves(&job, progress, progress_user, err);
    const size_t bytes = (size_t)job.pool.n_threads * job.scratch_floats * sizeof *job.scratch;
    qrn_free(&list->allocator, job.scratch, bytes);
    for (int i = 0; i < 2; i++) qrn_free(&list->allocator, job.buffers[i], job.buffer_bytes);
    qrn_threads_destroy(&job.pool, &list->allocator);
    return s;
}
