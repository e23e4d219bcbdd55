/* SPDX-License-Identifier: MIT
 * Inside a CUDA device: what the parts of the backend share.
 *
 * Whatever calls the driver enters the device's context and leaves it, so that the library serves
 * inside programs that have contexts of their own. */
#ifndef QUERN_BACKENDS_CUDA_CUDA_H
#define QUERN_BACKENDS_CUDA_CUDA_H

#include <stdatomic.h>
#include "backends/cuda/driver.h"
#include "core/device_impl.h"

/* What device code needs; machine code for sm_90a and sm_100 runs on that architecture alone. */
enum qrn_cuda_feature {
    QRN_CUDA_SM80 = 1 << 0,  /* compute capability 8.0 or more */
    QRN_CUDA_SM90 = 1 << 1,  /* 9.0 */
    QRN_CUDA_SM100 = 1 << 2, /* 10.0 */
    QRN_CUDA_BLAS = 1 << 3   /* cuBLASLt is there (cublaslt.h) */
};

/* What a launch leaves for nobody: zeros between launches, where a block of one hands sums over to the next one
 * (matmul_stream_cuda.h), or blocks are counted that have come (attention_token_cuda.h); and what blocks of a chain exchange (matmul_chain_cuda.h), zeros at first. */
enum { QRN_CUDA_HANDOVER_BYTES = 2048, QRN_CUDA_EXCHANGE_BYTES = 1 << 20 };

struct qrn_cuda_functions; /* see launch.c */
struct qrn_cuda_blas;      /* see cublaslt.h */

struct qrn_cuda {
    struct qrn_cuda_driver driver;
    const struct qrn_allocator *allocator;
    CUdevice device;
    CUcontext context;
    CUstream stream;
    bool owns_context, owns_stream;
    int capability, n_multiprocessors; /* 90 is 9.0 */
    bool overlaps; /* launches may: device code waits by itself for what was launched before (device/kernel.cuh) */
    bool alone; /* no other work whose blocks wait for each other runs beside this device's: see cuda_alone */
    bool joins; /* recorded steps that a joint knows are one launch */
    CUdeviceptr scratch;
    size_t scratch_bytes;
    uint64_t scratch_generation; /* counts its addresses */
    CUdeviceptr handover;        /* behind scratch: QRN_CUDA_HANDOVER_BYTES for each multiprocessor, then
                                    QRN_CUDA_EXCHANGE_BYTES */
    struct qrn_cuda_functions *functions;
    struct qrn_cuda_blas *blas; /* NULL: without */
    CUevent clock[2]; /* made when somebody first times something */
    CUevent noted[2]; /* of shared.c; made when first needed */
    _Atomic int lost; /* the CUresult after which nothing works, or 0 */
};

/* Makes the device's context current; says so when the device is lost. */
enum qrn_status qrn_cuda_enter(struct qrn_cuda *cuda, struct qrn_error *err);
void qrn_cuda_leave(struct qrn_cuda *cuda);

/* The status of a result, with a sentence that says what was tried; notes when the device is
 * lost. */
enum qrn_status qrn_cuda_status(struct qrn_cuda *cuda, CUresult result, const char *what,
                                struct qrn_error *err);

/* memory.c: the context is current. */
enum qrn_status qrn_cuda_reserve_scratch(struct qrn_cuda *cuda, size_t n_bytes,
                                         struct qrn_error *err);
void *qrn_cuda_alloc(struct qrn_device *dev, size_t n_bytes);
void qrn_cuda_free(struct qrn_device *dev, void *memory, size_t n_bytes);
void qrn_cuda_zero(struct qrn_device *dev, void *memory, size_t n_bytes);
extern const struct qrn_copies qrn_cuda_copies;
enum qrn_status qrn_cuda_queue_copy(struct qrn_device *dev, void *to, const void *from,
                                    size_t n_bytes, struct qrn_error *err);

/* clock.c: how long queued work takes on the device.  The context is current in destroy. */
enum qrn_status qrn_cuda_clock_start(struct qrn_device *dev, struct qrn_error *err);
enum qrn_status qrn_cuda_clock_stop(struct qrn_device *dev, double *ns, struct qrn_error *err);
void qrn_cuda_clock_destroy(struct qrn_cuda *cuda);

/* replay.c */
enum qrn_status qrn_cuda_execute(struct qrn_device *dev, const struct qrn_step *steps,
                                 size_t n_steps, size_t scratch_bytes, struct qrn_error *err);
extern const struct qrn_replays qrn_cuda_replays;

#endif
