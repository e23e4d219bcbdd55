/* SPDX-License-Identifier: MIT
 * Made-up calls of every op, of the sizes that models have: what quern bench --op times. */
#ifndef QUERN_TOOLS_BENCH_CASES_H
#define QUERN_TOOLS_BENCH_CASES_H

#include <quern/ops.h>
#include "core/op.h"

struct bench_case {
    char name[80];
    bool skip;
    union {
#define QRN_OP(name) struct qrn_##name##_args name;
#include "ops/ops.inc"
#undef QRN_OP
    } args;
};

/* Memory of a case, freed together.  What fails leaves status and err. */
struct bench_memory {
    struct qrn_device *dev;
    const char *only; /* cases whose name lacks this are not made; NULL: all are */
    void *blocks;
    size_t n_bytes; /* of all blocks */
    enum qrn_status status;
    struct qrn_error err;
};
void bench_memory_free(struct bench_memory *memory);

/* A row of the table: sizes mean what its function says. */
struct bench_row {
    enum qrn_op_id op;
    void (*build)(struct bench_memory *memory, const int64_t *size, struct bench_case *out);
    int64_t size[8];
};

/* Ended by a row without build; one for each bench_cases_<name>.c. */
extern const struct bench_row bench_rows_matmul[], bench_rows_norm[], bench_rows_gdn[],
    bench_rows_attention[], bench_rows_choice[];

/* Row i of an op; NULL past the end. */
const struct bench_row *bench_row_at(enum qrn_op_id op, size_t i);

/* Makes the call; false if it is not wanted, does not exist here (a type without a packed form), or
 * failed (memory->status says). */
bool bench_build(const struct bench_row *row, struct bench_memory *memory, struct bench_case *out);

/* Names the case; false if it is not wanted: nothing else is to be made then. */
bool bench_named(const struct bench_memory *memory, struct bench_case *c, const char *format, ...)
    QRN_PRINTF(3, 4);

/* --- bench_memory.c: arguments --- */

/* n_bytes of zeros, 64-byte aligned; NULL if there is none. */
void *bench_bytes(struct bench_memory *memory, size_t n_bytes);
/* Uniform values in -scale .. scale; unused dimensions are 0. */
struct qrn_tensor bench_floats(struct bench_memory *memory, float scale, int64_t n0, int64_t n1,
                               int64_t n2);
struct qrn_tensor bench_ints(struct bench_memory *memory, int64_t n0, int64_t n1);
/* [n0] or [n0, n1] weights of any type that decodes: encoded ones where there is an encoder. */
struct qrn_tensor bench_weights(struct bench_memory *memory, enum qrn_dtype dtype, int64_t n0,
                                int64_t n1, int64_t n2);
/* [n0, n1] addresses of blocks of n_bytes. */
struct qrn_tensor bench_addresses(struct bench_memory *memory, int64_t n0, int64_t n1,
                                  size_t n_bytes);
/* One sequence of n_tokens; one number. */
struct qrn_tensor bench_seq_begin(struct bench_memory *memory, int64_t n_tokens);
struct qrn_tensor bench_one_int(struct bench_memory *memory, int64_t value);

#endif
