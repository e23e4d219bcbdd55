/* SPDX-License-Identifier: MIT
 * cuBLASLt on the emulated driver: the entry points that quern uses, for the one product that it
 * asks for, checked as strictly as the library may do it.  Products are queued on the stream, and
 * read and write when it comes to them.
 *
 * Faults on demand, read from the environment with each call:
 *     QRN_EMULATED_BLAS_VERSION   110000 is 11.0
 *     QRN_EMULATED_BLAS_FAILS     "cublasLtMatmul 14": that function returns that status; a search
 *                                 that returns 0 finds nothing */
#include "backends/cuda/cublaslt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "emulator/blas_counts.h"
#include "emulator/emulator.h"

enum { NOT_INITIALIZED = 1, INVALID_VALUE = 7, EXECUTION_FAILED = 13 };

struct qrn_blas_handle {
    int unused;
};
struct qrn_blas_desc {
    int transposed;
};
struct qrn_blas_layout {
    int type;
    uint64_t n_rows, n_columns;
    int64_t column, matrix;
    int32_t n_matrices;
};
struct qrn_blas_wishes {
    uint64_t workspace;
    uint32_t parts, alignment[4];
};

static _Atomic long n_handles, n_descriptions, n_searches, n_products, last_algorithm;

/* Entry points have the types that quern's table says. */
#define QRN_BLAS_ENTRY(name, symbol, result, params) EXPORTED result symbol params;
#include "backends/cuda/cublaslt_api.inc"
#undef QRN_BLAS_ENTRY
EXPORTED void emulated_blas_count(struct emulated_blas_counts *out);

void emulated_blas_count(struct emulated_blas_counts *out)
{
    *out = (struct emulated_blas_counts){n_handles, n_descriptions, n_searches, n_products,
                                         last_algorithm};
}

static bool fails(const char *function, int *status)
{
    const char *fault = getenv("QRN_EMULATED_BLAS_FAILS");
    const size_t n = strlen(function);
    if (!fault || strncmp(fault, function, n) != 0 || fault[n] != ' ') return false;
    *status = (int)strtol(fault + n, NULL, 10);
    return true;
}

size_t cublasLtGetVersion(void)
{
    const char *version = getenv("QRN_EMULATED_BLAS_VERSION");
    return version ? strtoul(version, NULL, 10) : 130000;
}

/* --- what is made, and given back --- */

static int create(const char *function, void **out, size_t n_bytes, _Atomic long *count)
{
    int status = QRN_BLAS_NO_MEMORY;
    if (fails(function, &status)) return status;
    *out = calloc(1, n_bytes);
    if (!*out) return QRN_BLAS_NO_MEMORY;
    ++*count;
    return QRN_BLAS_GOOD;
}

static int destroy(void *made, _Atomic long *count)
{
    free(made);
    --*count;
    return QRN_BLAS_GOOD;
}

static bool is_in_context(void)
{
    CUdevice device;
    return cuCtxGetDevice(&device) == CUDA_SUCCESS;
}

int cublasLtCreate(struct qrn_blas_handle **out)
{
    void *made = NULL;
    if (!is_in_context()) return NOT_INITIALIZED;
    const int status = create("cublasLtCreate", &made, sizeof **out, &n_handles);
    *out = made;
    return status;
}

int cublasLtDestroy(struct qrn_blas_handle *handle)
{
    return is_in_context() ? destroy(handle, &n_handles) : NOT_INITIALIZED;
}

int cublasLtMatmulDescCreate(struct qrn_blas_desc **out, int compute_type, int scale_type)
{
    void *made = NULL;
    if (compute_type != QRN_BLAS_SUMS_F32 || scale_type != QRN_BLAS_REAL_F32) return INVALID_VALUE;
    const int status = create("cublasLtMatmulDescCreate", &made, sizeof **out, &n_descriptions);
    *out = made;
    return status;
}

int cublasLtMatmulDescDestroy(struct qrn_blas_desc *desc)
{
    return destroy(desc, &n_descriptions);
}

int cublasLtMatrixLayoutCreate(struct qrn_blas_layout **out, int type, uint64_t n_rows,
                               uint64_t n_columns, int64_t column)
{
    void *made = NULL;
    if (type != QRN_BLAS_REAL_F32 && type != QRN_BLAS_REAL_BF16) return INVALID_VALUE;
    const int status = create("cublasLtMatrixLayoutCreate", &made, sizeof **out, &n_descriptions);
    *out = made;
    if (made) **out = (struct qrn_blas_layout){type, n_rows, n_columns, column, 0, 1};
    return status;
}

int cublasLtMatrixLayoutDestroy(struct qrn_blas_layout *layout)
{
    return destroy(layout, &n_descriptions);
}

int cublasLtMatmulPreferenceCreate(struct qrn_blas_wishes **out)
{
    void *made = NULL;
    const int status =
        create("cublasLtMatmulPreferenceCreate", &made, sizeof **out, &n_descriptions);
    *out = made;
    if (made) **out = (struct qrn_blas_wishes){0, 7, {256, 256, 256, 256}};
    return status;
}

int cublasLtMatmulPreferenceDestroy(struct qrn_blas_wishes *wishes)
{
    return destroy(wishes, &n_descriptions);
}

/* --- attributes --- */

static int set(const char *function, void *attribute, size_t wants, const void *value,
               size_t n_bytes)
{
    int status = INVALID_VALUE;
    if (fails(function, &status)) return status;
    if (!attribute || !value || n_bytes != wants) return INVALID_VALUE;
    memcpy(attribute, value, n_bytes);
    return QRN_BLAS_GOOD;
}
#define SET(function, field) set(function, &(field), sizeof(field), value, n_bytes)

int cublasLtMatmulDescSetAttribute(struct qrn_blas_desc *desc, int attribute, const void *value,
                                   size_t n_bytes)
{
    if (attribute != QRN_BLAS_DESC_TRANSPOSE_A) return INVALID_VALUE;
    return SET("cublasLtMatmulDescSetAttribute", desc->transposed);
}

int cublasLtMatrixLayoutSetAttribute(struct qrn_blas_layout *l, int attribute, const void *value,
                                     size_t n_bytes)
{
    static const char name[] = "cublasLtMatrixLayoutSetAttribute";
    switch (attribute) {
    case QRN_BLAS_LAYOUT_ROWS:
        return SET(name, l->n_rows);
    case QRN_BLAS_LAYOUT_COLUMNS:
        return SET(name, l->n_columns);
    case QRN_BLAS_LAYOUT_COLUMN:
        return SET(name, l->column);
    case QRN_BLAS_LAYOUT_MATRICES:
        return SET(name, l->n_matrices);
    case QRN_BLAS_LAYOUT_MATRIX:
        return SET(name, l->matrix);
    default:
        return INVALID_VALUE;
    }
}

int cublasLtMatmulPreferenceSetAttribute(struct qrn_blas_wishes *w, int attribute,
                                         const void *value, size_t n_bytes)
{
    static const char name[] = "cublasLtMatmulPreferenceSetAttribute";
    const int operand = attribute - QRN_BLAS_WISH_ALIGNMENT;
    if (attribute == QRN_BLAS_WISH_WORKSPACE) return SET(name, w->workspace);
    if (attribute == QRN_BLAS_WISH_PARTS) return SET(name, w->parts);
    return operand >= 0 && operand < 4 ? SET(name, w->alignment[operand]) : INVALID_VALUE;
}

/* --- algorithms --- */

/* Columns of whole vectors of 16 bytes. */
static bool is_layout(const struct qrn_blas_layout *l, int type, uint64_t n_rows,
                      uint64_t n_columns, int32_t n_matrices)
{
    const int64_t vector = type == QRN_BLAS_REAL_F32 ? 4 : 8;
    return l->type == type && l->n_rows == n_rows && l->n_columns == n_columns &&
           l->n_matrices == n_matrices && n_rows > 0 && n_columns > 0 && n_matrices > 0 &&
           (int64_t)n_rows % vector == 0 && l->column >= (int64_t)n_rows &&
           l->column % vector == 0 && l->matrix >= 0 && l->matrix % vector == 0;
}

static bool is_product(const struct qrn_blas_layout *a, const struct qrn_blas_layout *b,
                       const struct qrn_blas_layout *d)
{
    const uint64_t k = a->n_rows, n = a->n_columns, m = b->n_columns;
    return is_layout(a, QRN_BLAS_REAL_BF16, k, n, d->n_matrices) &&
           is_layout(b, QRN_BLAS_REAL_BF16, k, m, d->n_matrices) &&
           is_layout(d, QRN_BLAS_REAL_F32, n, m, d->n_matrices);
}

/* An algorithm is for one product, and says how much workspace it takes. */
enum { AT_WORKSPACE, AT_PLACE, AT_PRODUCT };

static uint64_t number_of(const struct qrn_blas_layout *const layouts[3])
{
    uint64_t h = 1;
    for (int i = 0; i < 3; i++) {
        const struct qrn_blas_layout *l = layouts[i];
        const uint64_t words[] = {l->n_rows, l->n_columns, (uint64_t)l->column, (uint64_t)l->matrix,
                                  (uint64_t)l->n_matrices};
        for (size_t k = 0; k < sizeof words / sizeof *words; k++)
            h = (h ^ words[k]) * 0x9e3779b97f4a7c15u;
    }
    return h;
}

/* The first one cannot be used; long sums take all of the workspace. */
int cublasLtMatmulAlgoGetHeuristic(struct qrn_blas_handle *handle, struct qrn_blas_desc *desc,
                                   struct qrn_blas_layout *a, struct qrn_blas_layout *b,
                                   struct qrn_blas_layout *c, struct qrn_blas_layout *d,
                                   struct qrn_blas_wishes *wishes, int n_wanted,
                                   struct qrn_blas_found *found, int *n_found)
{
    int status;
    n_searches++;
    *n_found = 0;
    if (fails("cublasLtMatmulAlgoGetHeuristic", &status)) return status;
    if (!handle || n_wanted <= 0 || desc->transposed != QRN_BLAS_TRANSPOSED || c != d ||
        wishes->parts != QRN_BLAS_PARTS_IN_WORKSPACE)
        return INVALID_VALUE;
    for (int i = 0; i < 4; i++)
        if (wishes->alignment[i] != QRN_BLAS_ALIGNMENT) return INVALID_VALUE;
    if (!is_product(a, b, d)) return QRN_BLAS_UNSUPPORTED;
    const struct qrn_blas_layout *const layouts[] = {a, b, d};
    for (; *n_found < 3 && *n_found < n_wanted; ++*n_found) {
        struct qrn_blas_found *f = &found[*n_found];
        *f = (struct qrn_blas_found){.status = *n_found ? QRN_BLAS_GOOD : QRN_BLAS_UNSUPPORTED,
                                     .workspace_bytes = a->n_rows >= 512 ? wishes->workspace : 0};
        if (*n_found == 0) continue;
        f->algorithm.data[AT_WORKSPACE] = f->workspace_bytes;
        f->algorithm.data[AT_PLACE] = (uint64_t)*n_found;
        f->algorithm.data[AT_PRODUCT] = number_of(layouts);
    }
    return QRN_BLAS_GOOD;
}

/* --- products --- */

struct call {
    const uint16_t *w, *x;
    float *out;
    unsigned char *workspace;
    size_t workspace_bytes;
    uint64_t place;
    struct qrn_blas_product p;
};

static float sum_of(const uint16_t *w, const uint16_t *x, int64_t k)
{
    float sum = 0.0f;
    for (int64_t i = 0; i < k; i++) sum += qrn_bf16_to_float(w[i]) * qrn_bf16_to_float(x[i]);
    return sum;
}

static void do_product(const void *params)
{
    struct call c;
    memcpy(&c, params, sizeof c);
    const struct qrn_blas_product *p = &c.p;
    memset(c.workspace, 0xff, c.workspace_bytes);
    for (int64_t i = 0; i < p->n_matrices; i++)
        for (int64_t m = 0; m < p->m; m++)
            for (int64_t n = 0; n < p->n; n++)
                c.out[i * p->out_matrix + m * p->out_row + n] =
                    sum_of(c.w + i * p->w_matrix + n * p->w_row,
                           c.x + i * p->x_matrix + m * p->x_row, p->k);
    n_products++;
    last_algorithm = (long)c.place;
}

static bool is_aligned(const void *address, uintptr_t n)
{
    return address && (uintptr_t)address % n == 0;
}

int cublasLtMatmul(struct qrn_blas_handle *handle, struct qrn_blas_desc *desc, const void *alpha,
                   const void *a, struct qrn_blas_layout *a_layout, const void *b,
                   struct qrn_blas_layout *b_layout, const void *beta, const void *c,
                   struct qrn_blas_layout *c_layout, void *d, struct qrn_blas_layout *d_layout,
                   const struct qrn_blas_algorithm *algorithm, void *workspace, size_t n_bytes,
                   CUstream stream)
{
    const struct qrn_blas_layout *const layouts[] = {a_layout, b_layout, d_layout};
    int status = EXECUTION_FAILED;
    if (fails("cublasLtMatmul", &status)) return status;
    if (!handle || desc->transposed != QRN_BLAS_TRANSPOSED || c != d || c_layout != d_layout ||
        *(const float *)alpha != 1.0f || *(const float *)beta != 0.0f || !algorithm)
        return INVALID_VALUE;
    if (!is_product(a_layout, b_layout, d_layout) ||
        algorithm->data[AT_PRODUCT] != number_of(layouts) ||
        algorithm->data[AT_WORKSPACE] > n_bytes)
        return INVALID_VALUE;
    if (!is_aligned(a, QRN_BLAS_ALIGNMENT) || !is_aligned(b, QRN_BLAS_ALIGNMENT) ||
        !is_aligned(d, QRN_BLAS_ALIGNMENT) || !is_aligned(workspace, QRN_BLAS_WORKSPACE_ALIGNMENT))
        return INVALID_VALUE;
    const struct call call = {.w = a,
                              .x = b,
                              .out = d,
                              .workspace = workspace,
                              .workspace_bytes = algorithm->data[AT_WORKSPACE],
                              .place = algorithm->data[AT_PLACE],
                              .p = {.m = (int64_t)b_layout->n_columns,
                                    .n = (int64_t)a_layout->n_columns,
                                    .k = (int64_t)a_layout->n_rows,
                                    .n_matrices = d_layout->n_matrices,
                                    .w_row = a_layout->column,
                                    .x_row = b_layout->column,
                                    .out_row = d_layout->column,
                                    .w_matrix = a_layout->matrix,
                                    .x_matrix = b_layout->matrix,
                                    .out_matrix = d_layout->matrix}};
    return emulator_queue_call(stream, "cublasLtMatmul", do_product, &call, sizeof call) ==
                   CUDA_SUCCESS
               ? QRN_BLAS_GOOD
               : EXECUTION_FAILED;
}
