/* SPDX-License-Identifier: MIT
 * Rows of a matrix where the files have them: checked, found, copied, decoded. */
#include "model/load_source.h"

#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "formats/blocks.h"
#include "model/config_mlx.h"

static enum qrn_status check_run(struct loader *ld, const struct row_run *run, int64_t n_in,
                                 enum qrn_dtype *dtype)
{
    const struct qrn_archive_tensor *t = run->tensor;
    *dtype = run->scales ? qrn_mlx_type(qrn_load_columns(t), n_in) : t->dtype;
    const bool whole =
        *dtype != QRN_DTYPE_COUNT && n_in % qrn_dtype_info(*dtype)->block_elements == 0;
    if (!whole || (!run->scales && qrn_load_columns(t) != n_in))
        return qrn_fail(ld->err, QRN_ERR_FORMAT,
                        "tensor \"%s\" has rows of %" PRId64 " (%s), wants %" PRId64 " values",
                        t->name, qrn_load_columns(t), t->type_name, n_in);
    if (run->first < 0 || run->n < 0 || run->first > qrn_load_rows_of(t) - run->n)
        return qrn_fail(ld->err, QRN_ERR_FORMAT,
                        "tensor \"%s\" has %" PRId64 " rows, wants %" PRId64, t->name,
                        qrn_load_rows_of(t), run->first + run->n);
    if (!run->scales) return QRN_OK;
    const struct qrn_archive_tensor *both[] = {run->scales, run->biases};
    for (int i = 0; i < 2; i++) {
        const int64_t groups = qrn_load_columns(both[i]);
        if (groups < 1 || n_in % groups || qrn_load_rows_of(both[i]) != qrn_load_rows_of(t) ||
            groups != qrn_load_columns(run->scales) || both[i]->dtype != run->scales->dtype)
            return qrn_fail(ld->err, QRN_ERR_FORMAT, "tensor \"%s\" does not fit \"%s\"",
                            both[i]->name, t->name);
    }
    const int64_t group = n_in / qrn_load_columns(run->scales);
    if (group != 32 && group != 64 && group != 128)
        return qrn_fail(ld->err, QRN_ERR_UNSUPPORTED,
                        "tensor \"%s\" has groups of %" PRId64 ", wants 32, 64 or 128", t->name,
                        group);
    return QRN_OK;
}

const uint8_t *qrn_source_part(const struct row_run *run, int part)
{
    const struct qrn_archive_tensor *const parts[] = {run->tensor, run->scales, run->biases};
    return parts[part]->data;
}

enum qrn_status qrn_source_describe(struct loader *ld, const struct row_run *runs, size_t n_runs,
                                    int64_t n_rows_wanted, int64_t n_in, struct source *out)
{
    struct source s = {.runs = runs, .n_runs = n_runs, .n_parts = runs[0].scales ? 3 : 1};
    int64_t rows = 0;
    for (size_t i = 0; i < n_runs; i++) {
        enum qrn_dtype one;
        QRN_TRY(check_run(ld, &runs[i], n_in, &one));
        if (i && (one != s.dtype[0] || !runs[i].scales != !runs[0].scales ||
                  (runs[i].scales &&
                   (runs[i].scales->dtype != runs[0].scales->dtype ||
                    qrn_load_columns(runs[i].scales) != qrn_load_columns(runs[0].scales)))))
            return qrn_fail(ld->err, QRN_ERR_UNSUPPORTED,
                            "tensors \"%s\" and \"%s\" belong together but are of other types",
                            runs[0].tensor->name, runs[i].tensor->name);
        s.dtype[0] = one;
        rows += runs[i].n;
    }
    if (rows != n_rows_wanted)
        return qrn_fail(ld->err, QRN_ERR_FORMAT,
                        "tensor \"%s\" has %" PRId64 " rows, wants %" PRId64, runs[0].tensor->name,
                        rows, n_rows_wanted);
    s.columns[0] = n_in;
    for (int i = 1; i < s.n_parts; i++) {
        s.dtype[i] = runs[0].scales->dtype;
        s.columns[i] = qrn_load_columns(runs[0].scales);
    }
    for (int i = 0; i < s.n_parts; i++)
        if (!qrn_row_bytes(s.dtype[i], s.columns[i], &s.row_bytes[i]))
            return qrn_fail(ld->err, QRN_ERR_FORMAT, "tensor \"%s\" is too large",
                            runs[0].tensor->name);
    *out = s;
    return QRN_OK;
}

size_t qrn_source_bytes(const struct source *s, int64_t rows)
{
    size_t n = 0;
    for (int i = 0; i < s->n_parts; i++) n += (size_t)rows * s->row_bytes[i];
    return n;
}

const struct row_run *qrn_source_find(const struct source *s, int64_t first, int64_t *at,
                                      int64_t *n)
{
    const struct row_run *run = s->runs;
    while (first >= run->n) first -= run++->n;
    *at = run->first + first;
    if (*n > run->n - first) *n = run->n - first;
    return run;
}

void qrn_source_copy(const struct source *s, int part, int64_t first, int64_t n, char *out)
{
    for (int64_t done = 0, at, some; done < n; done += some) {
        some = n - done;
        const struct row_run *run = qrn_source_find(s, first + done, &at, &some);
        const size_t bytes = (size_t)some * s->row_bytes[part];
        memcpy(out, qrn_source_part(run, part) + (size_t)at * s->row_bytes[part], bytes);
        out += bytes;
    }
}

/* Values of a row in room: codes, scales and biases, and the last two as floats. */
static void decode_mlx(const struct source *s, char *room, float *out)
{
    const int64_t n_groups = s->columns[1];
    const char *const scales = room + s->row_bytes[0];
    float *const floats = (float *)(void *)(room + qrn_source_row_room(s)) - 2 * n_groups;
    const qrn_decode_fn decode = qrn_decoder(s->dtype[1]);
    decode(scales, floats, (size_t)n_groups);
    decode(scales + s->row_bytes[1], floats + n_groups, (size_t)n_groups);
    qrn_decode_mlx(s->dtype[0], room, floats, floats + n_groups, s->columns[0] / n_groups, out,
                   (size_t)s->columns[0]);
}

size_t qrn_source_row_room(const struct source *s)
{
    const size_t codes = (qrn_source_bytes(s, 1) + 15) / 16 * 16;
    return s->n_parts == 1 ? codes : codes + 2 * (size_t)s->columns[1] * sizeof(float);
}

void qrn_source_decode(const struct source *s, int64_t row, char *room, float *out)
{
    char *at = room;
    for (int i = 0; i < s->n_parts; at += s->row_bytes[i++]) qrn_source_copy(s, i, row, 1, at);
    if (s->n_parts > 1)
        decode_mlx(s, room, out);
    else
        qrn_decoder(s->dtype[0])(room, out, (size_t)s->columns[0]);
}
