/* SPDX-License-Identifier: MIT
 * Joints: rms_norm, silu_mul or sigmoid_mul, and the product that follows, whose blocks make x each for
 * themselves while their first weights are on their way. */
#include "backends/cuda/joints.h"
#include "backends/cuda/rows.h"
#include "backends/cuda/x_maker.h"
#include "core/overlap.h"

/* How an op makes x, and x as it stores it; false: not in whole pieces. */
typedef bool (*find_maker)(const void *args, struct qrn_x_maker *maker, struct qrn_tensor *x);

static int64_t last(const struct qrn_tensor *t)
{
    return t->shape[t->n_dims - 1];
}

/* Rows of heads: [n, d] or [n, heads, d].  Of an absent tensor nothing. */
static struct qrn_x_side side_of(const struct qrn_tensor *t)
{
    const struct qrn_rows r = qrn_rows(t);
    const bool heads = t->n_dims == 3;
    return (struct qrn_x_side){
        .data = r.data, .row = r.stride[heads ? 1 : 2], .head = heads ? r.stride[2] : 0};
}

/* All have heads of whole pieces, in the same number of dimensions. */
static bool find_sides(const struct qrn_tensor *a, const struct qrn_tensor *b,
                       struct qrn_x_maker *maker)
{
    if (a->n_dims < 2 || a->n_dims > 3 || last(a) % QRN_PIECE || last(a) == 0) return false;
    if (!qrn_rows_are_aligned(a) || !qrn_rows_are_aligned(b)) return false;
    maker->a = side_of(a);
    maker->b = side_of(b);
    maker->head_pieces = (int32_t)(last(a) / QRN_PIECE);
    return true;
}

static bool norm_maker(const void *args, struct qrn_x_maker *maker, struct qrn_tensor *x)
{
    const struct qrn_rms_norm_args *a = args;
    const bool heads = a->x.n_dims == 3;
    *maker = (struct qrn_x_maker){.made = heads ? QRN_X_HEAD_NORM : QRN_X_NORM,
                                  .weight = a->weight.n_dims ? (uint64_t)(uintptr_t)a->weight.data
                                                             : 0,
                                  .sum = side_of(&a->sum),
                                  .out = side_of(&a->out),
                                  .eps = a->eps};
    *x = a->rounded;
    if (x->n_dims == 0 || (heads && (last(&a->x) != QRN_PIECE || a->residual.n_dims || a->sum.n_dims)))
        return false;
    return (heads || !a->gate.n_dims) && find_sides(&a->x, heads ? &a->gate : &a->residual, maker);
}

static bool silu_maker(const void *args, struct qrn_x_maker *maker, struct qrn_tensor *x)
{
    const struct qrn_silu_mul_args *a = args;
    *maker = (struct qrn_x_maker){.made = QRN_X_SILU_MUL};
    *x = a->out;
    return find_sides(&a->gate, &a->up, maker);
}

static bool sigmoid_maker(const void *args, struct qrn_x_maker *maker, struct qrn_tensor *x)
{
    const struct qrn_sigmoid_mul_args *a = args;
    *maker = (struct qrn_x_maker){.made = QRN_X_SIGMOID_MUL};
    *x = a->out;
    return find_sides(&a->x, &a->gate, maker);
}

/* Whether x, as an op stores it, is what a product reads: rows of heads side by side. */
static bool are_same_rows(const struct qrn_tensor *x, const struct qrn_tensor *of_product)
{
    const int64_t heads = x->n_dims == 3 ? x->shape[1] : 1;
    return of_product->n_dims == 2 && x->dtype == of_product->dtype && x->data == of_product->data &&
           x->shape[0] == of_product->shape[0] && heads * last(x) == last(of_product) &&
           (heads == 1 || x->stride[1] == last(x)) &&
           (x->shape[0] == 1 || x->stride[0] == of_product->stride[0]);
}

/* Other blocks read what the first one stores beside: nothing that the op writes may it read. */
static bool reads_apart(const struct qrn_step *step)
{
    const struct qrn_op *op = step->op;
    for (size_t i = 0; i < op->n_operands; i++)
        for (size_t k = 0; k < op->n_operands; k++)
            if (i != k && (op->operands[i].access & QRN_WRITES) &&
                !qrn_are_apart(&op->operands[i],
                               qrn_operand_tensor(&op->operands[i], step->args), &op->operands[k],
                               qrn_operand_tensor(&op->operands[k], step->args)))
                return false;
    return true;
}

static bool matches(const struct qrn_step *steps, find_maker find,
                    bool (*makes)(const struct qrn_matmul_args *args))
{
    struct qrn_x_maker maker;
    struct qrn_tensor x;
    const struct qrn_matmul_args *product = steps[1].args;
    const struct qrn_tensor *const passed[] = {&x, &product->x};
    return find(steps[0].args, &maker, &x) && are_same_rows(&x, &product->x) && makes(product) &&
           reads_apart(&steps[0]) && qrn_cuda_are_joined(steps, 2, passed, 2);
}

static struct qrn_x_maker maker_of(const struct qrn_step *steps, find_maker find)
{
    struct qrn_x_maker maker;
    struct qrn_tensor x;
    (void)find(steps[0].args, &maker, &x);
    maker.rounded = side_of(&x);
    return maker;
}

/* JOINT(op, its kernel, maker, the product's kernel) */
#define JOINT(op, kernel, maker, product)                                                         static bool matches_##op##_##product(const struct qrn_cuda *cuda, const struct qrn_step *steps)     {                                                                                                 (void)cuda;                                                                                   return matches(steps, maker, qrn_cuda_##product##_makes);                                 }                                                                                             static void run_##op##_##product(struct qrn_cuda_stream *s, const struct qrn_step *steps)     {                                                                                                 qrn_cuda_##product##_run_made(s, steps[1].args, maker_of(steps, maker));                  }                                                                                             const struct qrn_cuda_joint qrn_cuda_joint_##op##_##product = {                                   .name = #op "_" #product,                                                                     .kernels = {&qrn_cuda_##op##_##kernel, &qrn_cuda_matmul_##product},                           .n_steps = 2,                                                                                 .matches = matches_##op##_##product,                                                          .run = run_##op##_##product,                                                              };

JOINT(rms_norm, registers, norm_maker, stream)
JOINT(silu_mul, rows, silu_maker, stream)
JOINT(sigmoid_mul, rows, sigmoid_maker, stream)
JOINT(rms_norm, registers, norm_maker, few)
JOINT(silu_mul, rows, silu_maker, few)
JOINT(sigmoid_mul, rows, sigmoid_maker, few)
