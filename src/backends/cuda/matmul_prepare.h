/* SPDX-License-Identifier: MIT
 * What comes before products of many rows: x rounded in scratch, slots sorted by expert. */
#ifndef QUERN_BACKENDS_CUDA_MATMUL_PREPARE_H
#define QUERN_BACKENDS_CUDA_MATMUL_PREPARE_H

#include "backends/cuda/matmul_job.h"

/* Scratch for rounded rows of x. */
size_t qrn_cuda_acts_bytes(const struct qrn_matmul_params *p);
/* Queues the rounding into memory at scratch, and says so in p. */
void qrn_cuda_round_x(struct qrn_cuda_stream *s, CUdeviceptr scratch, struct qrn_matmul_params *p);

/* Tiles of tile_rows rows that the product has at most; p says then how rows are cut.  By expert slots
 * are to be grouped if grouped. */
void qrn_cuda_cut_rows(struct qrn_matmul_params *p, int tile_rows, bool grouped);
size_t qrn_cuda_slots_bytes(const struct qrn_matmul_params *p); /* after cut_rows */
void qrn_cuda_sort_slots(struct qrn_cuda_stream *s, CUdeviceptr scratch,
                         struct qrn_matmul_params *p);

/* A kernel of matmul or matmul_id (op_) from takes(params, whether the job is one), scratch(params) and
 * run(stream, params); needs: of enum qrn_cuda_feature. */
#define QRN_CUDA_MATMUL_KERNEL_NEEDING(op_, variant, needs_, takes, scratch, run_params, serves_) \
    static bool op_##_##variant##_supports(const void *args)                                      \
    {                                                                                             \
        struct qrn_matmul_params p;                                                               \
        const bool ok = qrn_cuda_##op_##_job(args, &p);                                           \
        return takes(&p, ok);                                                                     \
    }                                                                                             \
    static size_t op_##_##variant##_scratch(const void *args, int n_threads)                      \
    {                                                                                             \
        struct qrn_matmul_params p;                                                               \
        (void)n_threads;                                                                          \
        (void)qrn_cuda_##op_##_job(args, &p);                                                     \
        return scratch(&p);                                                                       \
    }                                                                                             \
    static void op_##_##variant##_run(void *stream, const void *args)                             \
    {                                                                                             \
        struct qrn_matmul_params p;                                                               \
        (void)qrn_cuda_##op_##_job(args, &p);                                                     \
        run_params(stream, &p);                                                                   \
    }                                                                                             \
    const struct qrn_kernel qrn_cuda_##op_##_##variant = {                                        \
        .op = QRN_OP_##op_,                                                                       \
        .name = "cuda." #op_ "." #variant,                                                        \
        .needs = (needs_),                                                                        \
        .serves = (serves_),                                                                      \
        .supports = op_##_##variant##_supports,                                                   \
        .scratch_bytes = op_##_##variant##_scratch,                                               \
        .run = op_##_##variant##_run,                                                             \
    }
#define QRN_CUDA_MATMUL_KERNEL(op_, variant, takes, scratch, run_params, serves_) \
    QRN_CUDA_MATMUL_KERNEL_NEEDING(op_, variant, QRN_CUDA_SM80, takes, scratch, run_params, serves_)

#endif
