/* SPDX-License-Identifier: MIT
 * Made-up calls of every op, of the sizes that models have: what quern bench --op times. */
#ifndef QUERN_TOOLS_BENCH_CASES_H
#define QUERN_TOOLS_BENCH_CASES_H

#include <quern/ops.h>
#include "core/op.h"

struct bench_case {
    char name[80];
    bool skip;
    int first_size, n_sizes; /* of a row's sizes: those that are numbers in the name */
    /* Calls take rows of turn_bytes of the tensor at this offset of args in turn, as the positions of
     * a chunk; n_turns 0: they are all alike. */
    size_t turn_at, turn_bytes, n_turns;
    bool once; /* a recording of a device has a call for each copy and no more: none reads what another writes */
    union {
#define QRN_OP(name) struct qrn_##name##_args name;
#include "ops/ops.inc"
#undef QRN_OP
    } args;
};

/* The device's memory of a case, freed together.  What fails leaves status and err. */
struct bench_memory {
    struct qrn_device *dev;
    const char *only;     /* only cases whose name has this, with a $ as its end; NULL: all */
    const int64_t *sizes; /* n_sizes numbers in place of those in the name */
    size_t n_sizes;
    struct bench_block *blocks;
    size_t n_bytes; /* of all blocks */
    bool wild;      /* weights are random bytes: what comes out may be NaN */
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

/* Makes the call; false if it is not wanted, does not exist here (a type without a packed form, or one
 * that the op does not take), or failed (memory->status says). */
bool bench_build(const struct bench_row *row, struct bench_memory *memory, struct bench_case *out);

/* Names the case; false if it is not wanted: nothing else is to be made then. */
bool bench_named(const struct bench_memory *memory, struct bench_case *c, const char *format, ...)
    QRN_PRINTF(3, 4);

/* --- bench_memory.c: arguments, in memory that the host need not be able to read --- */

/* n_bytes of zeros, 64-byte aligned; NULL if there is none. */
void *bench_bytes(struct bench_memory *memory, size_t n_bytes);
/* Uniform values of float32, f16 or bf16 in low .. high; unused dimensions are 0. */
struct qrn_tensor bench_uniform(struct bench_memory *memory, enum qrn_dtype dtype, float low,
                                float high, int64_t n0, int64_t n1, int64_t n2);
/* The same in -scale .. scale as float32; 0: zeros. */
struct qrn_tensor bench_floats(struct bench_memory *memory, float scale, int64_t n0, int64_t n1,
                               int64_t n2);
/* Of NaNs: to be written. */
struct qrn_tensor bench_output(struct bench_memory *memory, enum qrn_dtype dtype, int64_t n0,
                               int64_t n1, int64_t n2);
/* I32: zeros, the same value, or i * factor % modulus. */
struct qrn_tensor bench_ints(struct bench_memory *memory, int64_t n0, int64_t n1);
struct qrn_tensor bench_same_ints(struct bench_memory *memory, int64_t n, int64_t value);
struct qrn_tensor bench_ids(struct bench_memory *memory, int64_t n0, int64_t n1, int64_t factor,
                            int64_t modulus);
/* [n_places, n]: each row its index, behind the place first; in each column `apart` further than in the one before, the
 * first place behind the last one. */
struct qrn_tensor bench_places(struct bench_memory *memory, int64_t n_places, int64_t n,
                               int64_t first, int64_t apart);
/* [n0] or [n0, n1] weights of any type that decodes: encoded ones where there is an encoder. */
struct qrn_tensor bench_weights(struct bench_memory *memory, enum qrn_dtype dtype, int64_t n0,
                                int64_t n1, int64_t n2);
/* [n0, n1] addresses of blocks of n_bytes, full of values of that type in -scale .. scale. */
struct qrn_tensor bench_addresses(struct bench_memory *memory, enum qrn_dtype fill, float scale,
                                  int64_t n0, int64_t n1, size_t n_bytes);
/* n_seqs sequences of n_tokens each. */
struct qrn_tensor bench_seq_begin(struct bench_memory *memory, int64_t n_seqs, int64_t n_tokens);

/* What the call must do, also where the op's cost depends on numbers inside tensors; zeros: not
 * known. */
void bench_cost(const struct bench_memory *memory, enum qrn_op_id op, const struct bench_case *c,
                double *n_flops, double *n_bytes);

/* Whether a NaN, or the poison of an output, is among the first and last values that the call wrote. */
bool bench_wrote_nan(const struct bench_memory *memory, enum qrn_op_id op,
                     const struct bench_case *c);

#endif
