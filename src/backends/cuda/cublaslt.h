/* SPDX-License-Identifier: MIT
 * NVIDIA's library of matrix products, cuBLASLt, opened at run time where it is: never needed.
 *
 * What is declared here of its interface is the same in versions 12 and 13.  What they do not have
 * alike, the sizes of descriptions, is left to the library, which makes them. */
#ifndef QUERN_BACKENDS_CUDA_CUBLASLT_H
#define QUERN_BACKENDS_CUDA_CUBLASLT_H

#include "backends/cuda/launch.h"

/* What it returns, of which the rest are failures. */
enum qrn_blas_status { QRN_BLAS_GOOD = 0, QRN_BLAS_NO_MEMORY = 3, QRN_BLAS_UNSUPPORTED = 15 };

enum qrn_blas_constant {
    QRN_BLAS_REAL_F32 = 0, /* types */
    QRN_BLAS_REAL_BF16 = 14,
    QRN_BLAS_SUMS_F32 = 68, /* how sums are computed */
    QRN_BLAS_TRANSPOSED = 1,
    QRN_BLAS_PARTS_IN_WORKSPACE = 2 /* of k, whose sums are added by a launch of its own */
};

/* Attributes: of a product, of a matrix, of a search. */
enum qrn_blas_attribute {
    QRN_BLAS_DESC_TRANSPOSE_A = 3, /* int32_t */
    QRN_BLAS_LAYOUT_ROWS = 2,      /* uint64_t */
    QRN_BLAS_LAYOUT_COLUMNS = 3,   /* uint64_t */
    QRN_BLAS_LAYOUT_COLUMN = 4,    /* int64_t, elements from a column to the next */
    QRN_BLAS_LAYOUT_MATRICES = 5,  /* int32_t */
    QRN_BLAS_LAYOUT_MATRIX = 6,    /* int64_t, elements from a matrix to the next */
    QRN_BLAS_WISH_WORKSPACE = 1,   /* uint64_t, bytes at most */
    QRN_BLAS_WISH_PARTS = 3,       /* uint32_t: how k may be cut, besides not at all */
    QRN_BLAS_WISH_ALIGNMENT = 5    /* uint32_t, bytes; of a, and the next numbers of b, c, d */
};

struct qrn_blas_handle;
struct qrn_blas_desc;
struct qrn_blas_layout;
struct qrn_blas_wishes;

struct qrn_blas_algorithm {
    uint64_t data[8];
};

struct qrn_blas_found {
    struct qrn_blas_algorithm algorithm;
    size_t workspace_bytes;
    int status; /* whether it can be used */
    float n_waves;
    int rest[4];
};

/* out[i] = x[i] w[i]^T of each matrix i: n rows of bf16 weights and m of bf16 x, k long, float32
 * sums.  From a row to the next, and from a matrix to the next, in elements. */
struct qrn_blas_product {
    int64_t m, n, k, n_matrices;
    int64_t w_row, x_row, out_row;
    int64_t w_matrix, x_matrix, out_matrix;
};

/* w, x and out begin at multiples of QRN_BLAS_ALIGNMENT bytes, and so do all their rows; the
 * workspace at one of QRN_BLAS_WORKSPACE_ALIGNMENT. */
enum {
    QRN_BLAS_ALIGNMENT = 16,
    QRN_BLAS_WORKSPACE_ALIGNMENT = 256,
    QRN_BLAS_WORKSPACE_BYTES = 32 << 20
};

/* More shapes than a model has of products, for two lengths of prompts. */
enum { QRN_BLAS_CHOICES = 32 };

struct qrn_blas_choice {
    struct qrn_blas_product product;
    struct qrn_blas_algorithm algorithm;
    bool exists;        /* the library has an algorithm for it */
    uint64_t last_used; /* 0: no choice yet */
};

struct qrn_cuda_blas {
    void *library;
#define QRN_BLAS_ENTRY(name, symbol, result, params) result(*name) params;
#include "backends/cuda/cublaslt_api.inc"
#undef QRN_BLAS_ENTRY
    struct qrn_blas_handle *handle;
    struct qrn_blas_desc *desc;
    struct qrn_blas_layout *w, *x, *out; /* of the product that is queued */
    struct qrn_blas_wishes *wishes;
    struct qrn_blas_choice choices[QRN_BLAS_CHOICES];
    uint64_t n_uses;
};

/* cublaslt.c.  Opens the library at path and gives it to the device, whose context is current.
 * Errors: QRN_ERR_UNSUPPORTED (not there, too old, other entry points), QRN_ERR_DEVICE (it fails),
 * QRN_ERR_MEMORY. */
enum qrn_status qrn_cuda_blas_open(struct qrn_cuda *cuda, const char *path, struct qrn_error *err);
/* The context is current.  Without a library nothing is done. */
void qrn_cuda_blas_close(struct qrn_cuda *cuda);

/* The status of a step in which the library failed. */
enum qrn_status qrn_cuda_blas_status(const struct qrn_cuda_stream *s, struct qrn_error *err);

/* cublaslt_product.c.  How the library will do it, the same for the same product; NULL: it cannot,
 * or a failure is in s.  Holds until the next product is chosen for. */
const struct qrn_blas_choice *qrn_cuda_blas_choose(struct qrn_cuda_stream *s,
                                                   const struct qrn_blas_product *product);
/* Queues it. */
void qrn_cuda_blas_multiply(struct qrn_cuda_stream *s, const struct qrn_blas_choice *choice,
                            uint64_t w, uint64_t x, uint64_t out, CUdeviceptr workspace);

#endif
