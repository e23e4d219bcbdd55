/* SPDX-License-Identifier: MIT
 * A driver, the emulated one or the machine's, and a function launched on it by name. */
#ifndef QUERN_TESTS_EMULATOR_DRIVER_TEST_H
#define QUERN_TESTS_EMULATOR_DRIVER_TEST_H

#include <stdlib.h>
#include <string.h>

#include "backends/cuda/driver.h"
#include "support/op_test.h"

/* Fragments, shuffles and copies are also what a real GPU makes of them. */
static inline bool is_real(void)
{
    const char *which = getenv("QRN_TEST_CUDA");
    return which && strcmp(which, "real") == 0;
}

struct test {
    struct qrn_cuda_driver d;
    CUcontext context;
    CUstream stream;
    CUmodule module;
    float *memory; /* of the host, shared with the device */
};
enum { N_FLOATS = 64 * 1024 };

#define GOOD(call) assert_int_equal(call, CUDA_SUCCESS)

/* A GPU that has no code in files named *_sm90a.cu. */
static inline bool is_not_hopper(void)
{
    struct qrn_cuda_driver d;
    int major = 0;
    if (!is_real()) return false;
    if (qrn_cuda_driver_open("", &d, NULL) != QRN_OK) return true;
    GOOD(d.device_attribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
    qrn_cuda_driver_close(&d);
    return major != 9;
}

/* With the device code of an image that the build has embedded. */
static inline void begin(struct test *t, const unsigned char *image)
{
    struct qrn_error err;
    if (qrn_cuda_driver_open(is_real() ? "" : QRN_TEST_EMULATOR, &t->d, &err) != QRN_OK)
        fail_msg("%s", err.text);
    GOOD(t->d.primary_retain(&t->context, 0));
    GOOD(t->d.context_push(t->context));
    GOOD(t->d.stream_create(&t->stream, 0));
    GOOD(t->d.module_load(&t->module, image));
    t->memory = aligned_alloc(8192, N_FLOATS * sizeof(float));
    assert_non_null(t->memory);
    memset(t->memory, 0, N_FLOATS * sizeof(float));
    GOOD(t->d.host_register(t->memory, N_FLOATS * sizeof(float), CU_MEMHOSTREGISTER_DEVICEMAP));
}

static inline void end(struct test *t)
{
    GOOD(t->d.host_unregister(t->memory));
    free(t->memory);
    (void)t->d.module_unload(t->module);
    (void)t->d.stream_destroy(t->stream);
    GOOD(t->d.context_pop(&t->context));
    GOOD(t->d.primary_release(0));
    qrn_cuda_driver_close(&t->d);
}

static inline CUresult launch_blocks(struct test *t, CUfunction f, unsigned n_blocks,
                                     unsigned n_threads, unsigned n_shared, void **params)
{
    const CUlaunchConfig c = {n_blocks, 1, 1, n_threads, 1, 1, n_shared, t->stream, NULL, 0};
    return t->d.launch(&c, f, params, NULL);
}

static inline CUresult launch(struct test *t, const char *name, unsigned n_threads,
                              unsigned n_shared, void *params)
{
    CUfunction f;
    GOOD(t->d.module_function(&f, t->module, name));
    if (n_shared > 48 * 1024)
        GOOD(t->d.function_set_attribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                         (int)n_shared));
    const CUresult r = launch_blocks(t, f, 1, n_threads, n_shared, &params);
    return r == CUDA_SUCCESS ? t->d.stream_synchronize(t->stream) : r;
}

#endif
