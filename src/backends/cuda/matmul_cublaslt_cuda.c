/* SPDX-License-Identifier: MIT
 * matmul of bf16 weights in rows with many rows of activations rounded to bf16, by NVIDIA's
 * cuBLASLt where it was found.
 *
 * Other types are not for it: with weights of f16 x is float32 and not rounded, by the op's
 * contract. */
#include "backends/cuda/cublaslt.h"
#include "backends/cuda/joints.h"
#include "backends/cuda/matmul_prepare.h"
#include "backends/cuda/matmul_wgmma_cuda.h"

QRN_CUDA_IMAGE(matmul_x_bf16);

enum { LEAST = 65 }; /* rows of x: as many as matmul.wgmma takes */

/* n things, each so many bytes behind the one before. */
struct run {
    int64_t n, bytes;
};

/* Whether runs, each one of the runs before it, are a single run; *bytes is then its distance, 0 of
 * one thing. */
static bool are_one_run(const struct run *runs, int n_runs, int64_t *bytes)
{
    int64_t n = 1;
    *bytes = 0;
    for (int i = 0; i < n_runs; i++) {
        if (runs[i].n == 1) continue;
        if (n == 1) *bytes = runs[i].bytes;
        if (runs[i].bytes != n * *bytes) return false;
        n *= runs[i].n;
    }
    return true;
}

/* Where rows lie: the first, from one to the next, from those of a matrix to those of the next. */
struct layout {
    uint64_t data;
    int64_t row, matrix; /* bytes */
};

/* Rows of n_bytes that begin where the library's fast algorithms, which read 16 bytes at once, can
 * take them. */
static bool can_take(const struct layout *l, int64_t n_bytes)
{
    return l->data % QRN_BLAS_ALIGNMENT == 0 && l->row % QRN_BLAS_ALIGNMENT == 0 &&
           l->matrix % QRN_BLAS_ALIGNMENT == 0 && l->row >= n_bytes && l->matrix >= 0;
}

/* Rows of x or of out, those that meet one weight matrix together. */
static bool find_rows(const struct qrn_matmul_params *p, const struct qrn_rows *r, int64_t n_bytes,
                      struct layout *out)
{
    const int64_t *stride = r->stride, w3 = p->n_matrices / p->w2;
    const struct run rows[] = {{p->m, stride[2]}, {p->r2, stride[1]}, {p->r3, stride[0]}},
                     matrices[] = {{p->w2, p->r2 * stride[1]}, {w3, p->r3 * stride[0]}};
    out->data = r->data;
    return are_one_run(rows, 3, &out->row) && are_one_run(matrices, 2, &out->matrix) &&
           can_take(out, n_bytes);
}

static bool find_weights(const struct qrn_matmul_params *p, struct layout *out)
{
    const int64_t *stride = p->w.w.stride;
    const struct run matrices[] = {{p->w2, stride[1]}, {p->n_matrices / p->w2, stride[0]}};
    *out = (struct layout){.data = p->w.w.data, .row = stride[2]};
    return are_one_run(matrices, 2, &out->matrix) && can_take(out, 2 * p->w.k);
}

/* x as it lies in memory; false: it has to be rounded, or copied. */
static bool find_x(const struct qrn_matmul_params *p, struct layout *out)
{
    return p->x_dtype == QRN_BF16 && find_rows(p, &p->x, 2 * p->w.k, out);
}

/* Rows of whole vectors of 16 bytes, of all three. */
static bool takes(const struct qrn_matmul_params *p, bool ok)
{
    struct layout w, out;
    if (!ok || p->w.packed || p->acts != QRN_ACTS_BF16 || !p->any_order) return false;
    if (p->most_rows < LEAST || p->w.n <= 0 || p->w.k <= 0 || p->w.n % 4 || p->w.k % 8)
        return false;
    if (p->most_rows > INT32_MAX || p->w.n > INT32_MAX || p->w.k > INT32_MAX) return false;
    return p->n_matrices <= INT32_MAX && find_weights(p, &w) &&
           find_rows(p, &p->out, 4 * p->w.n, &out);
}

static bool supports(const void *args)
{
    struct qrn_matmul_params p;
    const bool ok = qrn_cuda_matmul_job(args, &p);
    return takes(&p, ok);
}

static size_t whole(size_t n_bytes)
{
    return (n_bytes + QRN_BLAS_WORKSPACE_ALIGNMENT - 1) / QRN_BLAS_WORKSPACE_ALIGNMENT *
           QRN_BLAS_WORKSPACE_ALIGNMENT;
}

static size_t x_bytes(const struct qrn_matmul_params *p)
{
    struct layout x;
    return find_x(p, &x) ? 0 : (size_t)(p->n_matrices * p->most_rows * p->w.k) * sizeof(uint16_t);
}

/* The workspace, x rounded, and what both may lie behind the beginning of the step's scratch. */
static size_t scratch(const void *args, int n_threads)
{
    struct qrn_matmul_params p;
    (void)n_threads;
    (void)qrn_cuda_matmul_job(args, &p);
    return QRN_BLAS_WORKSPACE_ALIGNMENT + QRN_BLAS_WORKSPACE_BYTES + x_bytes(&p);
}

/* Rows of matrix 0, of matrix 1 .., rounded to memory. */
static void round_x(struct qrn_cuda_stream *s, const struct qrn_matmul_params *p, CUdeviceptr to)
{
    static const struct qrn_cuda_function f = {qrn_cuda_image_matmul_x_bf16, "qrn_matmul_x_bf16",
                                               0};
    const struct qrn_matmul_wgmma_params rounding = {
        .job = *p, .x16 = to, .n_x16 = p->n_matrices * p->most_rows, .x16_stride = p->w.k};
    qrn_cuda_launch(s, &f, qrn_grid_of_warps(rounding.n_x16 * qrn_ceil_div(p->w.k, 256)),
                    &rounding);
}

static void run(void *stream, const void *args)
{
    struct qrn_cuda_stream *s = stream;
    struct qrn_matmul_params p;
    struct layout w, x, out;
    (void)qrn_cuda_matmul_job(args, &p);
    (void)find_weights(&p, &w);
    (void)find_rows(&p, &p.out, 4 * p.w.n, &out);
    const CUdeviceptr workspace = whole(s->scratch);
    const bool rounds = !find_x(&p, &x);
    if (rounds)
        x = (struct layout){.data = workspace + QRN_BLAS_WORKSPACE_BYTES,
                            .row = 2 * p.w.k,
                            .matrix = p.n_matrices > 1 ? 2 * p.w.k * p.most_rows : 0};
    const struct qrn_blas_product product = {.m = p.most_rows,
                                             .n = p.w.n,
                                             .k = p.w.k,
                                             .n_matrices = p.n_matrices,
                                             .w_row = w.row / 2,
                                             .x_row = x.row / 2,
                                             .out_row = out.row / 4,
                                             .w_matrix = w.matrix / 2,
                                             .x_matrix = x.matrix / 2,
                                             .out_matrix = out.matrix / 4};
    const struct qrn_blas_choice *choice = qrn_cuda_blas_choose(s, &product);
    if (!choice) { /* the library has nothing for it: what any product of these types can have */
        qrn_cuda_matmul_bf16.run(s, args);
        return;
    }
    if (rounds) round_x(s, &p, x.data);
    qrn_cuda_blas_multiply(s, choice, w.data, x.data, out.data, workspace);
}

const struct qrn_kernel qrn_cuda_matmul_cublaslt = {
    .op = QRN_OP_matmul,
    .name = "cuda.matmul.cublaslt",
    .needs = QRN_CUDA_SM80 | QRN_CUDA_BLAS,
    .serves =
        "bf16 weights in rows of whole 16 bytes, bf16 activations: more than 64 rows of x in any "
        "order, by NVIDIA's library",
    .supports = supports,
    .scratch_bytes = scratch,
    .run = run,
};
