/* SPDX-License-Identifier: MIT
 * A product by cuBLASLt: an algorithm, chosen once for a shape, and the call.
 *
 * Asking for algorithms takes longer than a small product.  What was chosen is kept by shape, and
 * it is the library's first choice, which depends on nothing else: nothing is timed. */
#include "backends/cuda/cublaslt.h"

#include <string.h>

enum { MOST_FOUND = 8 };

/* Keeps a failure. */
static bool is_good(struct qrn_cuda_stream *s, int status, const char *function)
{
    if (status == QRN_BLAS_GOOD) return true;
    s->result = CUDA_ERROR_EXTERNAL_DEVICE;
    s->blas_status = status;
    s->failed = function;
    return false;
}

/* Rows here are the library's columns. */
static int set_layout(const struct qrn_cuda_blas *b, struct qrn_blas_layout *layout, int64_t length,
                      int64_t n_rows, int64_t row, int64_t n_matrices, int64_t matrix)
{
    const uint64_t rows = (uint64_t)length, columns = (uint64_t)n_rows;
    const int32_t n = (int32_t)n_matrices;
    int status = b->layout_set(layout, QRN_BLAS_LAYOUT_ROWS, &rows, sizeof rows);
    if (status == QRN_BLAS_GOOD)
        status = b->layout_set(layout, QRN_BLAS_LAYOUT_COLUMNS, &columns, sizeof columns);
    if (status == QRN_BLAS_GOOD)
        status = b->layout_set(layout, QRN_BLAS_LAYOUT_COLUMN, &row, sizeof row);
    if (status == QRN_BLAS_GOOD)
        status = b->layout_set(layout, QRN_BLAS_LAYOUT_MATRICES, &n, sizeof n);
    if (status == QRN_BLAS_GOOD)
        status = b->layout_set(layout, QRN_BLAS_LAYOUT_MATRIX, &matrix, sizeof matrix);
    return status;
}

static int set_layouts(const struct qrn_cuda_blas *b, const struct qrn_blas_product *p)
{
    int status = set_layout(b, b->w, p->k, p->n, p->w_row, p->n_matrices, p->w_matrix);
    if (status == QRN_BLAS_GOOD)
        status = set_layout(b, b->x, p->k, p->m, p->x_row, p->n_matrices, p->x_matrix);
    if (status == QRN_BLAS_GOOD)
        status = set_layout(b, b->out, p->n, p->m, p->out_row, p->n_matrices, p->out_matrix);
    return status;
}

/* The place of that product, or of the one that was used least recently. */
static struct qrn_blas_choice *place_of(struct qrn_cuda_blas *b,
                                        const struct qrn_blas_product *product)
{
    struct qrn_blas_choice *oldest = &b->choices[0];
    for (int i = 0; i < QRN_BLAS_CHOICES; i++) {
        struct qrn_blas_choice *c = &b->choices[i];
        if (c->last_used && memcmp(&c->product, product, sizeof *product) == 0) return c;
        if (c->last_used < oldest->last_used) oldest = c;
    }
    *oldest = (struct qrn_blas_choice){.product = *product};
    return oldest;
}

static bool search(struct qrn_cuda_stream *s, struct qrn_blas_choice *choice)
{
    struct qrn_cuda_blas *b = s->cuda->blas;
    struct qrn_blas_found found[MOST_FOUND];
    int n = 0;
    if (!is_good(s, set_layouts(b, &choice->product), "cublasLtMatrixLayoutSetAttribute"))
        return false;
    const int status =
        b->find(b->handle, b->desc, b->w, b->x, b->out, b->out, b->wishes, MOST_FOUND, found, &n);
    if (status == QRN_BLAS_UNSUPPORTED) n = 0;
    if (status != QRN_BLAS_UNSUPPORTED && !is_good(s, status, "cublasLtMatmulAlgoGetHeuristic"))
        return false;
    for (int i = 0; i < n && !choice->exists; i++) {
        choice->exists = found[i].status == QRN_BLAS_GOOD;
        choice->algorithm = found[i].algorithm;
    }
    return true;
}

const struct qrn_blas_choice *qrn_cuda_blas_choose(struct qrn_cuda_stream *s,
                                                   const struct qrn_blas_product *product)
{
    struct qrn_cuda_blas *b = s->cuda->blas;
    if (s->result != CUDA_SUCCESS) return NULL;
    struct qrn_blas_choice *choice = place_of(b, product);
    if (!choice->last_used && !search(s, choice)) return NULL;
    choice->last_used = ++b->n_uses;
    return choice->exists ? choice : NULL;
}

static void *pointer(uint64_t address)
{
    return (void *)(uintptr_t)address; // NOLINT(performance-no-int-to-ptr)
}

void qrn_cuda_blas_multiply(struct qrn_cuda_stream *s, const struct qrn_blas_choice *choice,
                            uint64_t w, uint64_t x, uint64_t out, CUdeviceptr workspace)
{
    static const float one = 1.0f, zero = 0.0f;
    const struct qrn_cuda_blas *b = s->cuda->blas;
    if (s->result != CUDA_SUCCESS || s->looks_up) return;
    if (!is_good(s, set_layouts(b, &choice->product), "cublasLtMatrixLayoutSetAttribute")) return;
    (void)is_good(s,
                  b->multiply(b->handle, b->desc, &one, pointer(w), b->w, pointer(x), b->x, &zero,
                              pointer(out), b->out, pointer(out), b->out, &choice->algorithm,
                              pointer(workspace), QRN_BLAS_WORKSPACE_BYTES, s->cuda->stream),
                  "cublasLtMatmul");
}
