/* SPDX-License-Identifier: MIT
 * Joints: rms_norm and one or two products of few rows of floats with it. */
#include "backends/cuda/norm_floats_cuda.h"

#include "backends/cuda/joints.h"
#include "backends/cuda/rows.h"
#include "backends/cuda/x_maker.h"

QRN_CUDA_IMAGE(norm_floats);

/* Of more rows of weights there are more blocks than a norm for each is worth. */
enum { MOST_WEIGHTS = 1024 };

/* Shared memory for x; 32 KB at most, for a row has up to 8192 elements, and several no more
 * (qrn_x_is_little). */
static int64_t x_bytes(const struct qrn_rms_norm_args *norm)
{
    return 4 * norm->x.shape[0] * norm->x.shape[1];
}

/* Whether the product is of rows of x as the norm stores them. */
static bool is_side(const struct qrn_matmul_args *a, const struct qrn_rms_norm_args *norm)
{
    const enum qrn_dtype type = a->w.dtype;
    return (type == QRN_F32 || type == QRN_F16 || type == QRN_BF16) && a->w.n_dims == 2 &&
           a->w.shape[0] > 0 && a->w.shape[0] <= MOST_WEIGHTS && a->out.n_dims == 2 &&
           qrn_x_is_read(&norm->out, &a->x);
}

static bool matches(const struct qrn_step *steps, size_t n_steps)
{
    const struct qrn_rms_norm_args *norm = steps[0].args;
    const struct qrn_tensor *passed[3] = {&norm->out};
    struct qrn_x_maker maker;
    if (norm->x.n_dims != 2 || norm->out.n_dims == 0 || !qrn_x_of_norm(norm, &maker) ||
        norm->x.shape[0] > QRN_NORM_FLOATS_ROWS ||
        !qrn_x_is_little(norm->x.shape[0], norm->x.shape[1] / QRN_PIECE))
        return false;
    for (size_t i = 1; i < n_steps; i++) {
        const struct qrn_matmul_args *product = steps[i].args;
        if (!is_side(product, norm)) return false;
        passed[i] = &product->x;
    }
    return qrn_x_reads_apart(&steps[0]) && qrn_cuda_are_joined(steps, n_steps, passed, n_steps);
}

static bool matches_one(const struct qrn_cuda *cuda, const struct qrn_step *steps)
{
    (void)cuda;
    return matches(steps, 2);
}

static bool matches_two(const struct qrn_cuda *cuda, const struct qrn_step *steps)
{
    (void)cuda;
    return matches(steps, 3);
}

static struct qrn_norm_floats_side side_of(const struct qrn_matmul_args *a)
{
    return (struct qrn_norm_floats_side){.w = (uint64_t)(uintptr_t)a->w.data,
                                         .out = (uint64_t)(uintptr_t)a->out.data,
                                         .w_row = a->w.stride[0] *
                                                  qrn_dtype_info(a->w.dtype)->block_bytes,
                                         .out_row = 4 * a->out.stride[0],
                                         .n = (int32_t)a->w.shape[0],
                                         .dtype = (int32_t)a->w.dtype};
}

static void launch(struct qrn_cuda_stream *s, const struct qrn_step *steps, bool two)
{
    static const struct qrn_cuda_function one_row = {qrn_cuda_image_norm_floats,
                                                     "qrn_norm_floats_1", 0},
                                          rows = {qrn_cuda_image_norm_floats, "qrn_norm_floats_4",
                                                  0};
    const struct qrn_rms_norm_args *norm = steps[0].args;
    struct qrn_norm_floats_params p = {.side = {side_of(steps[1].args)},
                                       .n_rows = (int32_t)norm->x.shape[0],
                                       .n_pieces = (int32_t)(norm->x.shape[1] / QRN_PIECE),
                                       .rounded_dtype = (int32_t)norm->rounded.dtype};
    (void)qrn_x_of_norm(norm, &p.maker);
    p.maker.rounded = qrn_x_side(&norm->rounded);
    if (two) p.side[1] = side_of(steps[2].args);
    qrn_cuda_launch(
        s, p.n_rows == 1 ? &one_row : &rows,
        (struct qrn_cuda_grid){.n_blocks = (p.side[0].n + p.side[1].n + QRN_NORM_FLOATS_WARPS - 1) /
                                           QRN_NORM_FLOATS_WARPS,
                               .n_threads = 32 * QRN_NORM_FLOATS_WARPS,
                               .shared_bytes = (unsigned)x_bytes(norm)},
        &p);
}

static void run_one(struct qrn_cuda_stream *s, const struct qrn_step *steps)
{
    launch(s, steps, false);
}

static void run_two(struct qrn_cuda_stream *s, const struct qrn_step *steps)
{
    launch(s, steps, true);
}

const struct qrn_cuda_joint qrn_cuda_joint_norm_two_floats = {
    .name = "norm_two_floats",
    .kernels = {&qrn_cuda_rms_norm_registers, &qrn_cuda_matmul_floats, &qrn_cuda_matmul_floats},
    .n_steps = 3,
    .matches = matches_two,
    .run = run_two,
};

const struct qrn_cuda_joint qrn_cuda_joint_norm_floats = {
    .name = "norm_floats",
    .kernels = {&qrn_cuda_rms_norm_registers, &qrn_cuda_matmul_floats},
    .n_steps = 2,
    .matches = matches_one,
    .run = run_one,
};
