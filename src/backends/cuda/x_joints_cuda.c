/* SPDX-License-Identifier: MIT
 * Joints: rms_norm, silu_mul or sigmoid_mul, and the product that follows, whose blocks make x each for
 * themselves while their first weights are on their way. */
#include "backends/cuda/joints.h"
#include "backends/cuda/x_maker.h"

/* How an op makes x, and x as it stores it; false: not in whole pieces. */
typedef bool (*find_maker)(const void *args, struct qrn_x_maker *maker, struct qrn_tensor *x);

static bool norm_maker(const void *args, struct qrn_x_maker *maker, struct qrn_tensor *x)
{
    const struct qrn_rms_norm_args *a = args;
    *x = a->rounded;
    return x->n_dims != 0 && qrn_x_of_norm(a, maker);
}

static bool silu_maker(const void *args, struct qrn_x_maker *maker, struct qrn_tensor *x)
{
    const struct qrn_silu_mul_args *a = args;
    *maker = (struct qrn_x_maker){.made = QRN_X_SILU_MUL};
    *x = a->out;
    return qrn_x_of_sides(&a->gate, &a->up, maker);
}

static bool sigmoid_maker(const void *args, struct qrn_x_maker *maker, struct qrn_tensor *x)
{
    const struct qrn_sigmoid_mul_args *a = args;
    *maker = (struct qrn_x_maker){.made = QRN_X_SIGMOID_MUL};
    *x = a->out;
    return qrn_x_of_sides(&a->x, &a->gate, maker);
}

static bool matches(const struct qrn_step *steps, find_maker find,
                    bool (*makes)(const struct qrn_matmul_args *args))
{
    struct qrn_x_maker maker;
    struct qrn_tensor x;
    const struct qrn_matmul_args *product = steps[1].args;
    const struct qrn_tensor *const passed[] = {&x, &product->x};
    return find(steps[0].args, &maker, &x) && qrn_x_is_read(&x, &product->x) && makes(product) &&
           qrn_x_reads_apart(&steps[0]) && qrn_cuda_are_joined(steps, 2, passed, 2);
}

static struct qrn_x_maker maker_of(const struct qrn_step *steps, find_maker find)
{
    struct qrn_x_maker maker;
    struct qrn_tensor x;
    (void)find(steps[0].args, &maker, &x);
    maker.rounded = qrn_x_side(&x);
    return maker;
}

/* JOINT(op, its kernel, maker, the product's kernel) */
#define JOINT(op, kernel, maker, product)                                                     \
    static bool matches_##op##_##product(const struct qrn_cuda *cuda,                         \
                                         const struct qrn_step *steps)                        \
    {                                                                                         \
        (void)cuda;                                                                           \
        return matches(steps, maker, qrn_cuda_##product##_makes);                             \
    }                                                                                         \
    static void run_##op##_##product(struct qrn_cuda_stream *s, const struct qrn_step *steps) \
    {                                                                                         \
        qrn_cuda_##product##_run_made(s, steps[1].args, maker_of(steps, maker));              \
    }                                                                                         \
    const struct qrn_cuda_joint qrn_cuda_joint_##op##_##product = {                           \
        .name = #op "_" #product,                                                             \
        .kernels = {&qrn_cuda_##op##_##kernel, &qrn_cuda_matmul_##product},                   \
        .n_steps = 2,                                                                         \
        .matches = matches_##op##_##product,                                                  \
        .run = run_##op##_##product,                                                          \
    };

JOINT(rms_norm, registers, norm_maker, stream)
JOINT(silu_mul, rows, silu_maker, stream)
JOINT(sigmoid_mul, rows, sigmoid_maker, stream)
JOINT(rms_norm, registers, norm_maker, few)
JOINT(silu_mul, rows, silu_maker, few)
JOINT(sigmoid_mul, rows, sigmoid_maker, few)
