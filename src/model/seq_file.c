/* SPDX-License-Identifier: MIT
 * Sequences in files.
 *
 *     header (struct below), bits id, tokens, then whole buffers: state and rows of the parities that
 *     are there, history, pages; at the end the checksum of all that
 *
 * A buffer is that of all layers in their order: the stages' one after the other.
 *
 * Numbers are in the machine's byte order: a file is for the model, build and device that made it. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/checksum.h"
#include "base/memory.h"
#include "model/ahead.h"

#define MAGIC "QRNSEQ"
/* Another with every change of what a buffer holds where. */
#define VERSION "02"

struct header {
    char magic[6], version[2];
    uint64_t model_hash, n_bits;
    int64_t n_tokens, peak, n_history;
    int32_t max_rollback, present;           /* bit i: parity i is there */
    uint64_t state, rows, history_row, page; /* bytes */
};

/* Whether the parity is there, in stages that need it. */
static bool is_present(const struct qrn_seq *seq, int i)
{
    return seq->recurrent[0].state[i] || seq->recurrent[seq->model->n_stages - 1].state[i];
}

static struct header header_of(const struct qrn_seq *seq)
{
    const struct qrn_seq_sizes *z = &seq->model->sizes;
    struct header h = {.model_hash = qrn_model_hash(seq->model),
                       .n_bits = strlen(seq->model->bits),
                       .n_tokens = seq->n_tokens,
                       .peak = seq->peak,
                       .n_history = seq->n_history,
                       .max_rollback = seq->max_rollback,
                       .state = z->state,
                       .rows = z->rows,
                       .history_row = z->history_row,
                       .page = z->page};
    memcpy(h.magic, MAGIC, sizeof h.magic);
    memcpy(h.version, VERSION, sizeof h.version);
    for (int i = 0; i < 2; i++) h.present |= is_present(seq, i) ? 1 << i : 0;
    return h;
}

/* Buffers of Gated DeltaNet layers. */
enum kind { STATE, ROWS, HISTORY };

static struct qrn_buffer **slot(struct qrn_recurrent *r, enum kind kind, int i)
{
    struct qrn_buffer **const slots[] = {&r->state[i], &r->rows[i], &r->history};
    return slots[kind];
}

/* --- saving --- */

struct output {
    FILE *file;
    struct qrn_staging staging; /* through which buffers pass that the host cannot read */
    enum qrn_status status;     /* of reading those */
    struct qrn_error error;
    uint64_t hash;
    bool failed;
};

static void put(struct output *o, const void *bytes, size_t n)
{
    o->hash = qrn_hash_bytes(o->hash, bytes, n);
    if (n && fwrite(bytes, 1, n, o->file) != n) o->failed = true;
}

static void put_part(struct output *o, struct qrn_hash_piece *piece, const void *bytes, size_t n)
{
    qrn_hash_part(piece, bytes, n);
    if (fwrite(bytes, 1, n, o->file) != n) o->failed = true;
}

static void put_buffer(struct output *o, struct qrn_hash_piece *piece,
                       const struct qrn_stage *stage, const struct qrn_buffer *b)
{
    if (qrn_device_host_reads(stage->device)) {
        put_part(o, piece, qrn_buffer_data(b), qrn_buffer_size(b));
        return;
    }
    for (size_t at = 0, n; at < qrn_buffer_size(b) && o->status == QRN_OK; at += n) {
        n = qrn_buffer_size(b) - at;
        if (n > o->staging.n_bytes) n = o->staging.n_bytes;
        o->status = qrn_buffer_read(b, at, o->staging.bytes, n, &o->error);
        if (o->status == QRN_OK) put_part(o, piece, o->staging.bytes, n);
    }
}

/* The stages' buffers, as one. */
static void put_whole(struct output *o, const struct qrn_model *model, struct qrn_buffer *const *b)
{
    size_t n = 0;
    for (int s = 0; s < model->n_stages; s++) n += b[s] ? qrn_buffer_size(b[s]) : 0;
    if (n == 0) return;
    struct qrn_hash_piece piece = qrn_hash_begin(o->hash, n);
    for (int s = 0; s < model->n_stages; s++)
        if (b[s]) put_buffer(o, &piece, &model->stages[s], b[s]);
    o->hash = qrn_hash_end(&piece);
}

static void put_recurrent(struct output *o, const struct qrn_seq *seq, enum kind kind, int i)
{
    struct qrn_buffer *b[QRN_MAX_STAGES] = {NULL};
    for (int s = 0; s < seq->model->n_stages; s++) {
        struct qrn_recurrent r = seq->recurrent[s];
        b[s] = *slot(&r, kind, i);
    }
    put_whole(o, seq->model, b);
}

static void put_seq(struct output *o, const struct qrn_seq *seq)
{
    const struct header h = header_of(seq);
    put(o, &h, sizeof h);
    put(o, seq->model->bits, h.n_bits);
    put(o, seq->tokens, (size_t)seq->n_tokens * sizeof *seq->tokens);
    for (int i = 0; i < 2; i++) {
        put_recurrent(o, seq, STATE, i);
        put_recurrent(o, seq, ROWS, i);
    }
    put_recurrent(o, seq, HISTORY, 0);
    for (int64_t i = 0; i < seq->n_pages; i++) put_whole(o, seq->model, qrn_seq_page(seq, i));
    const uint64_t hash = o->hash;
    if (fwrite(&hash, 1, sizeof hash, o->file) != sizeof hash) o->failed = true;
}

/* A new file beside path, renamed when it is whole. */
static enum qrn_status save(const struct qrn_seq *seq, const char *path, struct output *o,
                            struct qrn_error *err)
{
    static const char suffix[] = ".XXXXXX";
    const struct qrn_allocator *a = &seq->model->host.allocator;
    const size_t n = strlen(path) + sizeof suffix;
    char *temporary = qrn_alloc(a, n);
    if (!temporary) return qrn_fail_memory(err, n, "a path");
    (void)snprintf(temporary, n, "%s%s", path, suffix);
    enum qrn_status s = QRN_OK;
    const int fd = mkstemp(temporary);
    o->file = fd >= 0 ? fdopen(fd, "wb") : NULL;
    if (!o->file) {
        s = qrn_fail(err, QRN_ERR_IO, "%s: %s", temporary, strerror(errno));
        if (fd >= 0) (void)close(fd);
    } else {
        put_seq(o, seq);
        if (o->status != QRN_OK) {
            (void)fclose(o->file);
            s = o->status;
            if (err) *err = o->error;
        } else if (fclose(o->file) != 0 || o->failed)
            s = qrn_fail(err, QRN_ERR_IO, "%s: writing failed: %s", path, strerror(errno));
        else if (rename(temporary, path) != 0)
            s = qrn_fail(err, QRN_ERR_IO, "%s: %s", path, strerror(errno));
    }
    if (s != QRN_OK && fd >= 0) (void)unlink(temporary);
    qrn_free(a, temporary, n);
    return s;
}

enum qrn_status qrn_seq_save(const struct qrn_seq *seq, const char *path, struct qrn_error *err)
{
    enum { PIECE_BYTES = 4 << 20 };
    struct output o = {.hash = QRN_HASH_START};
    qrn_ahead_settle(seq);
    struct qrn_device *dev = qrn_model_last(seq->model)->device;
    if (!qrn_device_host_reads(dev)) QRN_TRY(qrn_staging_create(dev, PIECE_BYTES, &o.staging, err));
    const enum qrn_status s = save(seq, path, &o, err);
    qrn_staging_free(&o.staging);
    return s;
}

/* --- loading --- */

struct input {
    struct qrn_file file;
    size_t at;
    uint64_t hash;
};

static const void *get(struct input *in, size_t n)
{
    if (n > in->file.n_bytes - in->at) return NULL;
    const void *bytes = in->file.bytes + in->at;
    in->hash = qrn_hash_bytes(in->hash, bytes, n);
    in->at += n;
    return bytes;
}

/* The stages' buffers of n_bytes[] from one; 0: none. */
static enum qrn_status get_whole(struct input *in, const struct qrn_seq *seq, const size_t *n_bytes,
                                 struct qrn_buffer **const *out, struct qrn_error *err)
{
    size_t n = 0;
    for (int s = 0; s < seq->model->n_stages; s++) n += n_bytes[s];
    if (n == 0) return QRN_OK;
    const char *bytes = get(in, n);
    if (!bytes) return qrn_fail(err, QRN_ERR_FORMAT, "saved sequence: the file ends early");
    for (int s = 0; s < seq->model->n_stages; bytes += n_bytes[s++]) {
        if (n_bytes[s] == 0) continue;
        QRN_TRY(qrn_seq_acquire_to_fill(seq, &seq->model->stages[s], n_bytes[s], out[s], err));
        QRN_TRY(qrn_buffer_write(*out[s], 0, bytes, n_bytes[s], err));
    }
    return QRN_OK;
}

static enum qrn_status get_recurrent(struct input *in, struct qrn_seq *seq, enum kind kind, int i,
                                     struct qrn_error *err)
{
    size_t n_bytes[QRN_MAX_STAGES];
    struct qrn_buffer **out[QRN_MAX_STAGES];
    for (int s = 0; s < seq->model->n_stages; s++) {
        const struct qrn_stage *stage = &seq->model->stages[s];
        const size_t bytes[] = {stage->sizes.state, stage->sizes.rows,
                                qrn_seq_history_bytes(seq, stage)};
        n_bytes[s] = bytes[kind];
        out[s] = slot(&seq->recurrent[s], kind, i);
    }
    return get_whole(in, seq, n_bytes, out, err);
}

static enum qrn_status get_page(struct input *in, struct qrn_seq *seq, struct qrn_error *err)
{
    size_t n_bytes[QRN_MAX_STAGES];
    struct qrn_buffer **out[QRN_MAX_STAGES], **page = qrn_seq_page(seq, seq->n_pages++);
    for (int s = 0; s < seq->model->n_stages; s++) {
        n_bytes[s] = seq->model->stages[s].sizes.page;
        out[s] = &page[s];
        page[s] = NULL;
    }
    return get_whole(in, seq, n_bytes, out, err);
}

/* Whether it is the beginning of a saved sequence, of any version: two digits. */
static bool is_of_seq(const struct header *h)
{
    for (size_t i = 0; i < sizeof h->version; i++)
        if (h->version[i] < '0' || h->version[i] > '9') return false;
    return memcmp(h->magic, MAGIC, sizeof h->magic) == 0;
}

/* All that the header says fits the model, the options and itself. */
static enum qrn_status check_header(const struct qrn_model *model, const struct header *h,
                                    struct qrn_error *err)
{
    const struct qrn_seq_sizes *z = &model->sizes;
    if (!is_of_seq(h))
        return qrn_fail(err, QRN_ERR_FORMAT, "saved sequence: not a file of a sequence");
    if (memcmp(h->version, VERSION, sizeof h->version) != 0)
        return qrn_fail(err, QRN_ERR_MISMATCH,
                        "saved sequence: the file is of version %.2s, wants " VERSION, h->version);
    if (h->model_hash != qrn_model_hash(model))
        return qrn_fail(err, QRN_ERR_MISMATCH, "saved sequence: made by another model");
    if (h->state != z->state || h->rows != z->rows || h->history_row != z->history_row ||
        h->page != z->page)
        return qrn_fail(err, QRN_ERR_MISMATCH, "saved sequence: made with another type of cache");
    if (h->n_tokens > model->max_context)
        return qrn_fail(err, QRN_ERR_LIMIT,
                        "saved sequence: %" PRId64 " tokens, the context holds %" PRId64,
                        h->n_tokens, model->max_context);
    const int64_t kernel = model->files.config.conv_kernel;
    const int parity = (int)(qrn_chunk_of(h->n_tokens) & 1);
    const bool good = h->n_tokens >= 0 && h->peak >= h->n_tokens && h->max_rollback >= 0 &&
                      h->max_rollback <= QRN_CHUNK && h->peak - h->n_tokens <= h->max_rollback &&
                      h->n_history == kernel - 1 + h->max_rollback + QRN_HISTORY_SLACK &&
                      (unsigned)h->present <= 3 && (!z->n_linear || h->present >> parity & 1);
    if (!good)
        return qrn_fail(err, QRN_ERR_FORMAT, "saved sequence: the header contradicts itself");
    return QRN_OK;
}

static enum qrn_status check_bits(struct input *in, const struct qrn_model *model, uint64_t n_bits,
                                  unsigned flags, struct qrn_error *err)
{
    const char *bits = n_bits <= in->file.n_bytes ? get(in, (size_t)n_bits) : NULL;
    if (!bits) return qrn_fail(err, QRN_ERR_FORMAT, "saved sequence: the file ends early");
    const bool same =
        n_bits == strlen(model->bits) && memcmp(bits, model->bits, (size_t)n_bits) == 0;
    if (same || (flags & QRN_LOAD_ANY_BITS)) return QRN_OK;
    return qrn_fail(err, QRN_ERR_MISMATCH, "saved sequence: of bits id \"%.*s\", this is \"%s\"",
                    n_bits > 150 ? 150 : (int)n_bits, bits, model->bits);
}

static enum qrn_status get_tokens(struct input *in, struct qrn_seq *seq, int64_t n,
                                  struct qrn_error *err)
{
    const void *tokens = get(in, (size_t)n * sizeof *seq->tokens);
    if (!tokens) return qrn_fail(err, QRN_ERR_FORMAT, "saved sequence: the file ends early");
    QRN_TRY(qrn_seq_reserve(seq, n, err));
    memcpy(seq->tokens, tokens, (size_t)n * sizeof *seq->tokens);
    for (int64_t i = 0; i < n; i++)
        if (seq->tokens[i] < 0 || seq->tokens[i] >= seq->model->files.config.vocab_size)
            return qrn_fail(err, QRN_ERR_FORMAT,
                            "saved sequence: token %" PRId32 " is out of range", seq->tokens[i]);
    seq->n_tokens = n;
    return QRN_OK;
}

static enum qrn_status get_seq(struct input *in, struct qrn_seq *seq, const struct header *h,
                               struct qrn_error *err)
{
    QRN_TRY(get_tokens(in, seq, h->n_tokens, err));
    seq->peak = h->peak;
    for (int i = 0; i < 2; i++) {
        if (!(h->present >> i & 1)) continue;
        QRN_TRY(get_recurrent(in, seq, STATE, i, err));
        QRN_TRY(get_recurrent(in, seq, ROWS, i, err));
    }
    QRN_TRY(get_recurrent(in, seq, HISTORY, 0, err));
    while (seq->n_pages < (h->n_tokens + QRN_CHUNK - 1) / QRN_CHUNK)
        QRN_TRY(get_page(in, seq, err));
    const uint64_t hash = in->hash;
    const void *stored = get(in, sizeof hash);
    if (!stored || memcmp(stored, &hash, sizeof hash) != 0)
        return qrn_fail(err, QRN_ERR_FORMAT, "saved sequence: the checksum does not agree");
    return QRN_OK;
}

enum qrn_status qrn_seq_load(struct qrn_model *model, const char *path, unsigned flags,
                             struct qrn_seq **out, struct qrn_error *err)
{
    struct input in = {.hash = QRN_HASH_START};
    struct header h;
    struct qrn_seq *seq = NULL;
    QRN_TRY(qrn_file_open(path, &model->host, &in.file, err));
    enum qrn_status s = QRN_OK;
    const void *header = get(&in, sizeof h);
    if (header) {
        memcpy(&h, header, sizeof h);
        s = check_header(model, &h, err);
    } else {
        s = qrn_fail(err, QRN_ERR_FORMAT, "saved sequence: the file ends early");
    }
    if (s == QRN_OK) s = check_bits(&in, model, h.n_bits, flags, err);
    if (s == QRN_OK) s = qrn_seq_new(model, h.max_rollback, &seq, err);
    if (s == QRN_OK) s = get_seq(&in, seq, &h, err);
    qrn_file_close(&in.file);
    if (s != QRN_OK) {
        qrn_seq_destroy(seq);
        return qrn_error_prefix(err, s, "%s", path);
    }
    *out = seq;
    return QRN_OK;
}
