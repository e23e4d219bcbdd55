/* SPDX-License-Identifier: MIT
 * Opening cuBLASLt: the library, its version, its entry points, and what a device keeps of it. */
#include "backends/cuda/cublaslt.h"

#include <dlfcn.h>
#include <string.h>
#include "base/memory.h"

enum { OLDEST = 120000 }; /* 12.0 */

static const struct {
    const char *symbol;
    size_t offset;
} entries[] = {
#define QRN_BLAS_ENTRY(name, symbol, result, params) \
    {#symbol, offsetof(struct qrn_cuda_blas, name)},
#include "backends/cuda/cublaslt_api.inc"
#undef QRN_BLAS_ENTRY
};

static enum qrn_status find_entries(struct qrn_cuda_blas *b, const char *path,
                                    struct qrn_error *err)
{
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        void *p = dlsym(b->library, entries[i].symbol);
        if (!p)
            return qrn_fail(err, QRN_ERR_UNSUPPORTED, "cuBLASLt, %s, has no entry point %s", path,
                            entries[i].symbol);
        memcpy((char *)b + entries[i].offset, &p, sizeof p);
    }
    const size_t version = b->version();
    if (version >= OLDEST) return QRN_OK;
    return qrn_fail(err, QRN_ERR_UNSUPPORTED, "cuBLASLt is too old: needs %d.%d, %s is %zu.%zu",
                    OLDEST / 10000, OLDEST % 10000 / 100, path, version / 10000,
                    version % 10000 / 100);
}

static enum qrn_status fail(struct qrn_error *err, int status, const char *function)
{
    return qrn_fail(err, status == QRN_BLAS_NO_MEMORY ? QRN_ERR_MEMORY : QRN_ERR_DEVICE,
                    "cuda, %s: cuBLASLt's status %d", function, status);
}

enum qrn_status qrn_cuda_blas_status(const struct qrn_cuda_stream *s, struct qrn_error *err)
{
    return fail(err, s->blas_status, s->failed);
}

/* The weights lie as the library has transposed ones: it counts columns where rows are meant.  k is
 * not cut, or its parts are added up behind the product, in one order. */
static enum qrn_status describe(struct qrn_cuda_blas *b, struct qrn_error *err)
{
    static const int32_t transposed = QRN_BLAS_TRANSPOSED;
    static const uint64_t workspace = QRN_BLAS_WORKSPACE_BYTES;
    static const uint32_t parts = QRN_BLAS_PARTS_IN_WORKSPACE, alignment = QRN_BLAS_ALIGNMENT;
    int status = b->desc_create(&b->desc, QRN_BLAS_SUMS_F32, QRN_BLAS_REAL_F32);
    if (status == QRN_BLAS_GOOD)
        status = b->desc_set(b->desc, QRN_BLAS_DESC_TRANSPOSE_A, &transposed, sizeof transposed);
    if (status != QRN_BLAS_GOOD) return fail(err, status, "cublasLtMatmulDesc");

    status = b->layout_create(&b->w, QRN_BLAS_REAL_BF16, 1, 1, 1);
    if (status == QRN_BLAS_GOOD) status = b->layout_create(&b->x, QRN_BLAS_REAL_BF16, 1, 1, 1);
    if (status == QRN_BLAS_GOOD) status = b->layout_create(&b->out, QRN_BLAS_REAL_F32, 1, 1, 1);
    if (status != QRN_BLAS_GOOD) return fail(err, status, "cublasLtMatrixLayout");

    status = b->wishes_create(&b->wishes);
    if (status == QRN_BLAS_GOOD)
        status = b->wishes_set(b->wishes, QRN_BLAS_WISH_WORKSPACE, &workspace, sizeof workspace);
    if (status == QRN_BLAS_GOOD)
        status = b->wishes_set(b->wishes, QRN_BLAS_WISH_PARTS, &parts, sizeof parts);
    for (int i = 0; i < 4 && status == QRN_BLAS_GOOD; i++)
        status =
            b->wishes_set(b->wishes, QRN_BLAS_WISH_ALIGNMENT + i, &alignment, sizeof alignment);
    return status == QRN_BLAS_GOOD ? QRN_OK : fail(err, status, "cublasLtMatmulPreference");
}

static enum qrn_status start(struct qrn_cuda_blas *b, const char *path, struct qrn_error *err)
{
    /* It registers functions for the program's end: it may be given back but not unmapped. */
    b->library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!b->library) {
        const char *why = dlerror();
        return qrn_fail(err, QRN_ERR_UNSUPPORTED, "no cuBLASLt: %s", why ? why : path);
    }
    QRN_TRY(find_entries(b, path, err));
    const int status = b->create(&b->handle);
    return status == QRN_BLAS_GOOD ? describe(b, err) : fail(err, status, "cublasLtCreate");
}

enum qrn_status qrn_cuda_blas_open(struct qrn_cuda *cuda, const char *path, struct qrn_error *err)
{
    cuda->blas = qrn_alloc_zeroed(cuda->allocator, sizeof *cuda->blas);
    if (!cuda->blas) return qrn_fail_memory(err, sizeof *cuda->blas, "cuBLASLt");
    const enum qrn_status status = start(cuda->blas, path, err);
    if (status != QRN_OK) qrn_cuda_blas_close(cuda);
    return status;
}

void qrn_cuda_blas_close(struct qrn_cuda *cuda)
{
    struct qrn_cuda_blas *b = cuda->blas;
    if (!b) return;
    if (b->wishes) (void)b->wishes_destroy(b->wishes);
    if (b->out) (void)b->layout_destroy(b->out);
    if (b->x) (void)b->layout_destroy(b->x);
    if (b->w) (void)b->layout_destroy(b->w);
    if (b->desc) (void)b->desc_destroy(b->desc);
    if (b->handle) (void)b->destroy(b->handle);
    if (b->library) (void)dlclose(b->library);
    qrn_free(cuda->allocator, b, sizeof *b);
    cuda->blas = NULL;
}
