/* SPDX-License-Identifier: MIT
 * Where the toolkit has cuBLASLt's header: what quern declares of it is what it says. */
#if defined(__has_include)
#if __has_include(<cublasLt.h>)
#include <cublasLt.h>

#include "backends/cuda/cublaslt.h"

#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #theirs)
SAME(QRN_BLAS_GOOD, CUBLAS_STATUS_SUCCESS);
SAME(QRN_BLAS_NO_MEMORY, CUBLAS_STATUS_ALLOC_FAILED);
SAME(QRN_BLAS_UNSUPPORTED, CUBLAS_STATUS_NOT_SUPPORTED);
SAME(QRN_BLAS_REAL_F32, CUDA_R_32F);
SAME(QRN_BLAS_REAL_BF16, CUDA_R_16BF);
SAME(QRN_BLAS_SUMS_F32, CUBLAS_COMPUTE_32F);
SAME(QRN_BLAS_TRANSPOSED, CUBLAS_OP_T);
SAME(QRN_BLAS_PARTS_IN_WORKSPACE, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
SAME(QRN_BLAS_DESC_TRANSPOSE_A, CUBLASLT_MATMUL_DESC_TRANSA);
SAME(QRN_BLAS_LAYOUT_ROWS, CUBLASLT_MATRIX_LAYOUT_ROWS);
SAME(QRN_BLAS_LAYOUT_COLUMNS, CUBLASLT_MATRIX_LAYOUT_COLS);
SAME(QRN_BLAS_LAYOUT_COLUMN, CUBLASLT_MATRIX_LAYOUT_LD);
SAME(QRN_BLAS_LAYOUT_MATRICES, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT);
SAME(QRN_BLAS_LAYOUT_MATRIX, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
SAME(QRN_BLAS_WISH_WORKSPACE, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
SAME(QRN_BLAS_WISH_PARTS, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
SAME(QRN_BLAS_WISH_ALIGNMENT, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
SAME(QRN_BLAS_WISH_ALIGNMENT + 1, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
SAME(QRN_BLAS_WISH_ALIGNMENT + 2, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
SAME(QRN_BLAS_WISH_ALIGNMENT + 3, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
SAME(sizeof(struct qrn_blas_algorithm), sizeof(cublasLtMatmulAlgo_t));
SAME(sizeof(struct qrn_blas_found), sizeof(cublasLtMatmulHeuristicResult_t));
SAME(offsetof(struct qrn_blas_found, workspace_bytes),
     offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
SAME(offsetof(struct qrn_blas_found, status), offsetof(cublasLtMatmulHeuristicResult_t, state));

/* Handles and descriptions are addresses, enums ints, of which functions say nothing more. */
SAME(sizeof(cublasStatus_t), sizeof(int));
SAME(sizeof(cublasLtHandle_t), sizeof(void *));
SAME(sizeof(cublasLtMatmulDesc_t), sizeof(void *));
SAME(sizeof(cublasLtMatrixLayout_t), sizeof(void *));
SAME(sizeof(cublasLtMatmulPreference_t), sizeof(void *));
#endif
#endif
