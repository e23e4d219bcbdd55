/* SPDX-License-Identifier: MIT
 * What a kernel's run needs: the stream, scratch, launching device functions.
 *
 * Device code lives in device/<file>.cu; a function of it takes one struct by value, which the host
 * includes too (<op>_cuda.h). */
#ifndef QUERN_BACKENDS_CUDA_LAUNCH_H
#define QUERN_BACKENDS_CUDA_LAUNCH_H

#include "backends/cuda/cuda.h"

/* The machine code of device/<file>.cu, embedded by the build. */
#define QRN_CUDA_IMAGE(file) extern const unsigned char qrn_cuda_image_##file[]

/* A function of device code; static const, its address is what it is known by. */
struct qrn_cuda_function {
    const unsigned char *image;
    const char *name;
    int max_shared_bytes; /* dynamic; to be said when above 48 KiB, else 0 */
    bool most_shared;     /* blocks of two launches share a multiprocessor: it has all the shared memory that it can */
};

/* What run gets in place of a lane.  Failures stay in it: the first one, and who had it. */
struct qrn_cuda_stream {
    struct qrn_cuda *cuda;
    CUdeviceptr scratch; /* of this step */
    bool overlaps;       /* launches begin while the one before ends */
    bool lets_next;      /* the last launch lets this one's blocks begin when its turn has come */
    bool after_copy;     /* but for the next one: numbers that stay are there when that is done */
    bool looks_up;       /* functions are only looked up: modules are not loaded while recording */
    bool in_graph;     /* what is queued becomes a graph, which begins when all before it is done */
    bool numbers_stay; /* so integers and addresses that this step is given are there as it begins:
                          device code may read them before qrn_grid_waits */
    const struct qrn_step *step; /* the one that is queued, of a graph and by itself; else NULL */
    CUresult result;
    const char *failed;
    int blas_status; /* of cuBLASLt, where that is what failed; else 0 */
};

struct qrn_cuda_grid {
    int64_t n_blocks;                /* along x; 0: nothing is launched */
    unsigned n_blocks_y, n_blocks_z; /* 0: 1 */
    unsigned n_threads;
    unsigned shared_bytes; /* dynamic */
    bool meets; /* its blocks, no more than there are multiprocessors, wait for each other */
    bool lets_next;        /* blocks of the next launch begin when this one's turn has come */
    unsigned n_cluster;    /* blocks of a cluster, along x (device/pipeline.cuh); 0: none */
};

/* Whether device code of the step may read this operand before qrn_grid_waits: nothing in its graph writes
 * that before it. */
bool qrn_cuda_operand_stays(const struct qrn_cuda_stream *s, const char *name);
/* The same of one of a joint's steps. */
bool qrn_cuda_step_operand_stays(const struct qrn_cuda_stream *s, const struct qrn_step *step, const char *name);

/* Queues function(*params). */
void qrn_cuda_launch(struct qrn_cuda_stream *s, const struct qrn_cuda_function *function,
                     struct qrn_cuda_grid grid, const void *params);

enum qrn_status qrn_cuda_functions_create(struct qrn_cuda *cuda, struct qrn_error *err);
void qrn_cuda_functions_destroy(struct qrn_cuda *cuda); /* the context is current */

#endif
