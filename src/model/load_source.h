/* SPDX-License-Identifier: MIT
 * Rows of a matrix where the files have them. */
#ifndef QUERN_MODEL_LOAD_SOURCE_H
#define QUERN_MODEL_LOAD_SOURCE_H

#include "model/load.h"

/* Where rows of a matrix come from: runs of rows, and for each of codes, scales and biases the type
 * and the bytes of a row.  Scales and biases are of MLX codes only. */
struct source {
    const struct row_run *runs;
    size_t n_runs;
    int n_parts; /* 1 or 3 */
    enum qrn_dtype dtype[3];
    int64_t columns[3];
    size_t row_bytes[3];
};

/* Checks that the runs are n_rows rows of n_in values, of one type.  Errors: QRN_ERR_FORMAT,
 * QRN_ERR_UNSUPPORTED. */
enum qrn_status qrn_source_describe(struct loader *ld, const struct row_run *runs, size_t n_runs,
                                    int64_t n_rows, int64_t n_in, struct source *out);

/* Bytes of all parts of so many rows. */
size_t qrn_source_bytes(const struct source *s, int64_t rows);

/* Part `part` of a run's tensor. */
const uint8_t *qrn_source_part(const struct row_run *run, int part);

/* The rows from first on that lie together, at most n of them, and in which run. */
const struct row_run *qrn_source_find(const struct source *s, int64_t first, int64_t *at,
                                      int64_t *n);

/* Part `part` of n rows, one behind the other. */
void qrn_source_copy(const struct source *s, int part, int64_t first, int64_t n, char *out);

/* The values of a row; room: qrn_source_row_room bytes, aligned to 16. */
void qrn_source_decode(const struct source *s, int64_t row, char *room, float *out);
size_t qrn_source_row_room(const struct source *s);

#endif
