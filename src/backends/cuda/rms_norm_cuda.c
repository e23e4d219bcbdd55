/* SPDX-License-Identifier: MIT
 * rms_norm with all that models put around it. */
#include "backends/cuda/matmul_parts.h"
#include "backends/cuda/norm_runs.h"
#include "backends/cuda/op_params.h"

QRN_CUDA_IMAGE(norm);
QRN_CUDA_IMAGE(norm_registers);

struct qrn_rms_norm_params qrn_cuda_rms_norm_params(const struct qrn_rms_norm_args *a)
{
    struct qrn_rms_norm_params p = {.shape = qrn_rows_shape(&a->x),
                                    .x = qrn_rows(&a->x),
                                    .residual = qrn_rows(&a->residual),
                                    .gate = qrn_rows(&a->gate),
                                    .sum = qrn_rows(&a->sum),
                                    .out = qrn_rows(&a->out),
                                    .rounded = qrn_rows(&a->rounded),
                                    .eps = a->eps,
                                    .rounded_dtype = (int32_t)a->rounded.dtype,
                                    .weight =
                                        a->weight.n_dims ? (uint64_t)(uintptr_t)a->weight.data : 0};
    p.n_rows = qrn_n_rows(&p.shape);
    return p;
}

static void run_rows(void *stream, const void *args)
{
    static const struct qrn_cuda_function warp = {qrn_cuda_image_norm, "qrn_rms_norm_warp", 0},
                                          block = {qrn_cuda_image_norm, "qrn_rms_norm_block", 0};
    const struct qrn_rms_norm_params p = qrn_cuda_rms_norm_params(args);
    const bool short_rows = p.shape.d <= QRN_NORM_WARP_ROW;
    qrn_cuda_launch(stream, short_rows ? &warp : &block,
                    qrn_grid_of_warps(short_rows ? p.n_rows : p.n_rows * QRN_WARPS), &p);
}

/* Rows that fit into a block's registers, their elements four by four. */
static bool registers_support(const void *args)
{
    const struct qrn_rms_norm_args *a = args;
    const struct qrn_tensor *const all[] = {&a->x,   &a->weight, &a->residual, &a->gate,
                                            &a->sum, &a->out,    &a->rounded};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!qrn_rows_are_aligned(all[i])) return false;
    return a->x.shape[a->x.n_dims - 1] <= QRN_NORM_BLOCK_ROW;
}

bool qrn_cuda_rms_norm_is_wide(const struct qrn_rms_norm_args *a, int64_t n_multiprocessors)
{
    const struct qrn_rows_shape shape = qrn_rows_shape(&a->x);
    return shape.d > QRN_NORM_WARP_ROW && qrn_n_rows(&shape) <= n_multiprocessors &&
           a->gate.n_dims == 0;
}

/* What a row of a block is made of.  BESIDE: parts of a launch that lets blocks begin. */
enum wide_kind { OF_X, OF_PARTS, BESIDE, N_WIDE_KINDS };

/* params: p, or what it begins. */
static void launch_wide(struct qrn_cuda_stream *s, enum wide_kind kind,
                        const struct qrn_rms_norm_params *p, const void *params)
{
    static const struct qrn_cuda_function of[N_WIDE_KINDS][3] = {
        {{qrn_cuda_image_norm_registers, "qrn_rms_norm_wide1", 0},
         {qrn_cuda_image_norm_registers, "qrn_rms_norm_wide2", 0},
         {qrn_cuda_image_norm_registers, "qrn_rms_norm_wide4", 0}},
        {{qrn_cuda_image_norm_registers, "qrn_rms_norm_parts1", 0},
         {qrn_cuda_image_norm_registers, "qrn_rms_norm_parts2", 0},
         {qrn_cuda_image_norm_registers, "qrn_rms_norm_parts4", 0}},
        {{qrn_cuda_image_norm_registers, "qrn_rms_norm_beside1", 0},
         {qrn_cuda_image_norm_registers, "qrn_rms_norm_beside2", 0},
         {qrn_cuda_image_norm_registers, "qrn_rms_norm_parts4", 0}}};
    const int64_t piece = QRN_NORM_WIDE_WARPS * 128;
    const int i = p->shape.d <= piece ? 0 : p->shape.d <= 2 * piece ? 1 : 2;
    qrn_cuda_launch(
        s, &of[kind][i],
        (struct qrn_cuda_grid){.n_blocks = p->n_rows, .n_threads = 32 * QRN_NORM_WIDE_WARPS},
        params);
}

void qrn_cuda_rms_norm_of_parts(struct qrn_cuda_stream *s, const struct qrn_rms_norm_args *args,
                                const struct qrn_cuda_parts *parts, bool weight_stays)
{
    struct qrn_rms_norm_parts_params p = {.norm = qrn_cuda_rms_norm_params(args),
                                          .parts = parts->sums,
                                          .apart = parts->apart,
                                          .n_parts = parts->n};
    p.norm.weight_stays = weight_stays;
    launch_wide(s, parts->lets_next ? BESIDE : OF_PARTS, &p.norm, &p);
}

/* Many short rows without a residual stream, some at once. */
static bool launch_runs(struct qrn_cuda_stream *s, const struct qrn_rms_norm_params *p)
{
    static const struct qrn_cuda_function one = {qrn_cuda_image_norm_registers, "qrn_rms_norm_runs1", 0},
                                          two = {qrn_cuda_image_norm_registers, "qrn_rms_norm_runs2", 0};
    const int64_t n = qrn_cuda_norm_run(s->cuda, &p->shape);
    if (n == 1 || p->residual.data || p->sum.data) return false;
    const int64_t most = QRN_NORM_RUN_BLOCKS * (int64_t)s->cuda->n_multiprocessors;
    qrn_cuda_launch(s, p->shape.d <= 128 ? &one : &two, qrn_grid_that_stays(p->n_rows / n, most),
                    p);
    return true;
}

static void run_registers(void *stream, const void *args)
{
    static const struct {
        int64_t longest;
        struct qrn_cuda_function function;
    } forms[] = {{128, {qrn_cuda_image_norm_registers, "qrn_rms_norm_warp1", 0}},
                 {256, {qrn_cuda_image_norm_registers, "qrn_rms_norm_warp2", 0}},
                 {QRN_NORM_WARP_ROW, {qrn_cuda_image_norm_registers, "qrn_rms_norm_warp4", 0}},
                 {1024, {qrn_cuda_image_norm_registers, "qrn_rms_norm_block1", 0}},
                 {2048, {qrn_cuda_image_norm_registers, "qrn_rms_norm_block2", 0}},
                 {4096, {qrn_cuda_image_norm_registers, "qrn_rms_norm_block4", 0}},
                 {5120, {qrn_cuda_image_norm_registers, "qrn_rms_norm_block5", 0}},
                 {QRN_NORM_BLOCK_ROW, {qrn_cuda_image_norm_registers, "qrn_rms_norm_block8", 0}}};
    struct qrn_rms_norm_params p = qrn_cuda_rms_norm_params(args);
    const struct qrn_cuda_stream *s = stream;
    const int64_t d = p.shape.d;
    size_t i = 0;
    if (qrn_cuda_rms_norm_is_wide(args, s->cuda->n_multiprocessors)) {
        p.weight_stays = s->overlaps && qrn_cuda_operand_stays(s, "weight");
        launch_wide(stream, OF_X, &p, &p);
        return;
    }
    if (launch_runs(stream, &p)) return;
    while (forms[i].longest < d) i++;
    qrn_cuda_launch(stream, &forms[i].function,
                    qrn_grid_of_warps(d <= QRN_NORM_WARP_ROW ? p.n_rows : p.n_rows * QRN_WARPS),
                    &p);
}

const struct qrn_kernel qrn_cuda_rms_norm_registers = {
    .op = QRN_OP_rms_norm,
    .name = "cuda.rms_norm.registers",
    .needs = QRN_CUDA_SM80,
    .serves = "aligned rows of up to 8192",
    .supports = registers_support,
    .run = run_registers,
};

const struct qrn_kernel qrn_cuda_rms_norm_rows = {
    .op = QRN_OP_rms_norm,
    .name = "cuda.rms_norm.rows",
    .needs = QRN_CUDA_SM80,
    .run = run_rows,
};
