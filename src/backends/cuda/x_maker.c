/* SPDX-License-Identifier: MIT
 * How ops make rows of x, as products that make them themselves are told. */
#include "backends/cuda/x_maker.h"

#include "backends/cuda/rows.h"
#include "core/overlap.h"

static int64_t last(const struct qrn_tensor *t)
{
    return t->shape[t->n_dims - 1];
}

struct qrn_x_side qrn_x_side(const struct qrn_tensor *t)
{
    const struct qrn_rows r = qrn_rows(t);
    const bool heads = t->n_dims == 3;
    return (struct qrn_x_side){
        .data = r.data, .row = r.stride[heads ? 1 : 2], .head = heads ? r.stride[2] : 0};
}

bool qrn_x_of_sides(const struct qrn_tensor *a, const struct qrn_tensor *b,
                    struct qrn_x_maker *maker)
{
    if (a->n_dims < 2 || a->n_dims > 3 || last(a) % QRN_PIECE || last(a) == 0) return false;
    if (!qrn_rows_are_aligned(a) || !qrn_rows_are_aligned(b)) return false;
    maker->a = qrn_x_side(a);
    maker->b = qrn_x_side(b);
    maker->head_pieces = (int32_t)(last(a) / QRN_PIECE);
    return true;
}

bool qrn_x_of_norm(const struct qrn_rms_norm_args *a, struct qrn_x_maker *maker)
{
    const bool heads = a->x.n_dims == 3;
    *maker =
        (struct qrn_x_maker){.made = heads ? QRN_X_HEAD_NORM : QRN_X_NORM,
                             .weight = a->weight.n_dims ? (uint64_t)(uintptr_t)a->weight.data : 0,
                             .sum = qrn_x_side(&a->sum),
                             .out = qrn_x_side(&a->out),
                             .eps = a->eps};
    if (heads && (last(&a->x) != QRN_PIECE || a->residual.n_dims || a->sum.n_dims)) return false;
    return (heads || !a->gate.n_dims) &&
           qrn_x_of_sides(&a->x, heads ? &a->gate : &a->residual, maker);
}

bool qrn_x_is_read(const struct qrn_tensor *x, const struct qrn_tensor *of_product)
{
    const int64_t heads = x->n_dims == 3 ? x->shape[1] : 1;
    return of_product->n_dims == 2 && qrn_rows_are_aligned(x) && x->dtype == of_product->dtype &&
           x->data == of_product->data && x->shape[0] == of_product->shape[0] &&
           heads * last(x) == last(of_product) && (heads == 1 || x->stride[1] == last(x)) &&
           (x->shape[0] == 1 || x->stride[0] == of_product->stride[0]);
}

bool qrn_x_reads_apart(const struct qrn_step *step)
{
    const struct qrn_op *op = step->op;
    for (size_t i = 0; i < op->n_operands; i++)
        for (size_t k = 0; k < op->n_operands; k++)
            if (i != k && (op->operands[i].access & QRN_WRITES) &&
                !qrn_are_apart(&op->operands[i], qrn_operand_tensor(&op->operands[i], step->args),
                               &op->operands[k], qrn_operand_tensor(&op->operands[k], step->args)))
                return false;
    return true;
}
