/* SPDX-License-Identifier: MIT
 * add, mul, silu_mul, sigmoid_mul. */
#include "backends/cuda/elementwise_cuda.h"
#include "backends/cuda/rows.h"

QRN_CUDA_IMAGE(elementwise);

/* How many pieces of a row a warp takes at once. */
static int pieces_of_run(const struct qrn_cuda *cuda, const struct qrn_elementwise_params *p,
                         const struct qrn_tensor *const of[3])
{
    if (!qrn_are_many(p->n_pieces, cuda->n_multiprocessors) || p->n_pieces > INT32_MAX / QRN_PIECE || p->shape.d % 256) return 1;
    for (int i = 0; i < 3; i++)
        if (!qrn_rows_are_aligned(of[i])) return 1;
    return p->shape.d % 512 ? 2 : 4;
}

/* Blocks of a multiprocessor. */
enum { AT_ONCE = 4 };

/* of: a function for pieces one by one, for two and for four.  Tensors without gaps are one long row: fewer pieces are cut
 * short. */
static void launch(struct qrn_cuda_stream *s, const struct qrn_cuda_function of[3],
                   const struct qrn_tensor *x, const struct qrn_tensor *y,
                   const struct qrn_tensor *out)
{
    struct qrn_elementwise_params p = {.shape = qrn_rows_shape(x),
                                       .x = qrn_rows(x),
                                       .y = qrn_rows(y),
                                       .out = qrn_rows(out),
                                       .out_dtype = (int32_t)out->dtype};
    if (qrn_is_contiguous(x) && qrn_is_contiguous(y) && qrn_is_contiguous(out))
        p.shape = (struct qrn_rows_shape){{1, 1, 1}, qrn_n_rows(&p.shape) * p.shape.d};
    p.pieces_per_row = qrn_pieces_per_row(&p.shape);
    p.n_pieces = qrn_n_rows(&p.shape) * p.pieces_per_row;
    const int n = pieces_of_run(s->cuda, &p, (const struct qrn_tensor *const[]){x, y, out});
    const int64_t most = AT_ONCE * (int64_t)s->cuda->n_multiprocessors;
    qrn_cuda_launch(
        s, &of[n / 2],
        n > 1 ? qrn_grid_that_stays(p.n_pieces / n, most) : qrn_grid_of_warps(p.n_pieces), &p);
}

/* ELEMENTWISE(op, first, second): the names of its operands. */
#define ELEMENTWISE(op_name, first, second)                                                     \
    static void run_##op_name(void *stream, const void *args)                                   \
    {                                                                                           \
        static const struct qrn_cuda_function of[] = {                                          \
            {qrn_cuda_image_elementwise, "qrn_" #op_name, 0},                                   \
            {qrn_cuda_image_elementwise, "qrn_" #op_name "_runs2", 0},                          \
            {qrn_cuda_image_elementwise, "qrn_" #op_name "_runs4", 0}};                         \
        const struct qrn_##op_name##_args *a = args;                                            \
        launch(stream, of, &a->first, &a->second, &a->out);                                     \
    }                                                                                           \
    const struct qrn_kernel qrn_cuda_##op_name##_rows = {                                       \
        .op = QRN_OP_##op_name,                                                                 \
        .name = "cuda." #op_name ".rows",                                                       \
        .needs = QRN_CUDA_SM80,                                                                 \
        .run = run_##op_name,                                                                   \
    };

ELEMENTWISE(add, x, y)
ELEMENTWISE(mul, x, y)
ELEMENTWISE(silu_mul, gate, up)
ELEMENTWISE(sigmoid_mul, x, gate)
