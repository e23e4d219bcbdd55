/* SPDX-License-Identifier: MIT
 * What core knows of an op: its operands, its checks, its reference.  One struct qrn_op for each row
 * of ops/ops.inc, at the end of src/ops/<op>.c. */
#ifndef QUERN_CORE_OP_H
#define QUERN_CORE_OP_H

#include <quern/ops.h>
#include "base/error.h"

enum qrn_op_id {
#define QRN_OP(name) QRN_OP_##name,
#include "ops/ops.inc"
#undef QRN_OP
    QRN_OP_COUNT
};

enum qrn_access {
    QRN_READS = 1,
    QRN_WRITES = 2,
    QRN_OPTIONAL = 4, /* may be absent */
    QRN_OPAQUE = 8    /* memory whose extent the shape does not tell: the op checks it itself */
};

/* One tensor of an argument struct. */
struct qrn_operand {
    const char *name;
    size_t offset; /* of its struct qrn_tensor in the arguments */
    unsigned access;
    const char *may_be; /* of a written operand: the operands, separated by spaces, that it may be
                           the same view as; any other overlap is an error.  NULL: none */
};
/* One row of a table of operands: QRN_OPERAND(rms_norm, out, QRN_WRITES, "x"). */
#define QRN_OPERAND(op, field, ...)                                  \
    {                                                                \
#field, offsetof(struct qrn_##op##_args, field), __VA_ARGS__ \
    }

struct qrn_op {
    const char *name;
    size_t args_bytes;
    const struct qrn_operand *operands;
    size_t n_operands;
    /* Shapes, types and numbers; operands are already known to be sound by themselves (present,
     * strides, extents, overlaps).  Messages begin with the op's name. */
    enum qrn_status (*check)(const void *args, struct qrn_error *err);
    /* Numbers inside tensors of integers and addresses (ids, positions, bounds), before each run, in
     * memory that the host can read.  It may be asked on several threads at once.  NULL: none. */
    enum qrn_status (*check_data)(const void *args, struct qrn_error *err);
    bool checks_floats; /* check_data looks at floats too */
    /* The op in float64, straight from its formula.  Inputs of any type that check accepts; outputs
     * may be F64 tensors in place of what check accepts.  Operands do not overlap. */
    void (*reference)(const void *args);
    /* What the op must do at least, for benches; NULL if that says nothing. */
    void (*cost)(const void *args, double *n_flops, double *n_bytes);
    bool cost_changes; /* it looks at numbers inside tensors */
};

const struct qrn_op *qrn_op(enum qrn_op_id id);

/* Everything that can be wrong with args: the operands, then what op->check finds. */
enum qrn_status qrn_op_check(const struct qrn_op *op, const void *args, struct qrn_error *err);

static inline const struct qrn_tensor *qrn_operand_tensor(const struct qrn_operand *o,
                                                          const void *args)
{
    return (const struct qrn_tensor *)(const void *)((const char *)args + o->offset);
}

/* --- helpers for check functions; each returns QRN_OK or says what is wrong --- */

/* dtype is one of the n_types given (enum qrn_dtype). */
enum qrn_status qrn_check_dtype(const char *op, const char *name, const struct qrn_tensor *t,
                                struct qrn_error *err, int n_types, ...);
/* n_dims and shape (int64_t each); -1 in shape: anything. */
enum qrn_status qrn_check_shape(const char *op, const char *name, const struct qrn_tensor *t,
                                struct qrn_error *err, int n_dims, ...);
/* Same n_dims and shape as another. */
enum qrn_status qrn_check_same_shape(const char *op, const char *name, const struct qrn_tensor *t,
                                     const char *other_name, const struct qrn_tensor *other,
                                     struct qrn_error *err);

/* --- helpers for references: elements as doubles; types with a decoder, and integers --- */
double qrn_ref_get(const struct qrn_tensor *t, int64_t i0, int64_t i1, int64_t i2, int64_t i3);
void qrn_ref_set(const struct qrn_tensor *t, int64_t i0, int64_t i1, int64_t i2, int64_t i3,
                 double value);
/* The element at index i of the shape in row-major order, whatever the strides. */
double qrn_ref_get_flat(const struct qrn_tensor *t, int64_t i);
void qrn_ref_set_flat(const struct qrn_tensor *t, int64_t i, double value);
/* A block of QRN_Q8_ACT from index i on, rounded as cast rounds it. */
void qrn_ref_round_flat(const struct qrn_tensor *t, int64_t i, const double *values);

#endif
