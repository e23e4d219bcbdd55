/* SPDX-License-Identifier: MIT
 * The emulated driver: starting, the device, contexts, modules, functions, words for errors. */
#include "emulator/emulator.h"
#include "emulator/tensor_map.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
struct faults emulator_faults = {.sm = 90, .multiprocessors = 4, .memory = (size_t)1 << 40};
struct emulated_counts emulator_counts;
char emulator_message[512];

enum { MAX_DEPTH = 16 };
static _Thread_local struct CUctx_st *stack[MAX_DEPTH];
static _Thread_local int depth;
static struct CUctx_st primary = {.primary = true};
static struct emulated_kernel *kernels;

void emulator_enter(void)
{
    if (pthread_mutex_lock(&lock) == 0) return;
    (void)fprintf(stderr, "emulated device: a launch before this call never ended, it crashed\n");
    _Exit(EXIT_FAILURE);
}

void emulator_leave(void)
{
    (void)pthread_mutex_unlock(&lock);
}

static long number_of(const char *variable, long otherwise)
{
    const char *value = getenv(variable);
    return value && *value ? strtol(value, NULL, 10) : otherwise;
}

EXPORTED CUresult cuInit(unsigned flags)
{
    if (flags) return CUDA_ERROR_INVALID_VALUE;
    emulator_enter();
    emulator_faults = (struct faults){
        .fail_alloc = number_of("QRN_EMULATED_FAIL_ALLOC", 0),
        .lose_at_launch = number_of("QRN_EMULATED_LOSE_AT_LAUNCH", 0),
        .sm = (int)number_of("QRN_EMULATED_SM", 90),
        .multiprocessors = (int)number_of("QRN_EMULATED_MULTIPROCESSORS", 4),
        .slow_warp = (int)number_of("QRN_EMULATED_SLOW_WARP", -1),
        .reverse = number_of("QRN_EMULATED_REVERSE", 0) != 0,
        .late = number_of("QRN_EMULATED_LATE", 0) != 0,
        .memory = (size_t)number_of("QRN_EMULATED_MEMORY", 1L << 40),
    };
    emulator_leave();
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuDriverGetVersion(int *out)
{
    *out = (int)number_of("QRN_EMULATED_DRIVER_VERSION", 13000);
    return CUDA_SUCCESS;
}

EXPORTED void emulated_count(struct emulated_counts *out)
{
    emulator_enter();
    *out = emulator_counts;
    out->contexts += primary.retained;
    out->depth = depth;
    emulator_leave();
}

EXPORTED CUresult cuGetErrorName(CUresult r, const char **out)
{
    *out = r == CUDA_SUCCESS ? "CUDA_SUCCESS" : "CUDA_ERROR";
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuGetErrorString(CUresult r, const char **out)
{
    static const struct {
        CUresult result;
        const char *text;
    } texts[] = {
        {CUDA_SUCCESS, "no error"},
        {CUDA_ERROR_INVALID_VALUE, "invalid argument"},
        {CUDA_ERROR_OUT_OF_MEMORY, "out of memory"},
        {CUDA_ERROR_NOT_FOUND, "named symbol not found"},
        {CUDA_ERROR_INVALID_CONTEXT, "invalid device context"},
        {CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"},
        {CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"},
        {CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "memory is already registered"},
        {CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "memory is not registered"},
        {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted while recording"},
        {CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, "too many blocks in cooperative launch"},
    };
    *out = r == CUDA_ERROR_LAUNCH_FAILED && *emulator_message ? emulator_message : NULL;
    for (size_t i = 0; i < sizeof texts / sizeof *texts && !*out; i++)
        if (texts[i].result == r) *out = texts[i].text;
    return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORTED CUresult cuDeviceGetCount(int *out)
{
    *out = 1;
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuDeviceGet(CUdevice *out, int ordinal)
{
    *out = 0;
    return ordinal == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

EXPORTED CUresult cuDeviceGetName(char *out, int n_out, CUdevice device)
{
    if (device != 0 || n_out < 1) return CUDA_ERROR_INVALID_VALUE;
    (void)snprintf(out, (size_t)n_out, "emulated");
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuDeviceGetAttribute(int *out, CUdevice_attribute attribute, CUdevice device)
{
    if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        *out = emulator_faults.sm / 10;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        *out = emulator_faults.sm % 10;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        *out = emulator_faults.multiprocessors;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
        *out = 1;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* --- contexts --- */

struct CUctx_st *emulator_context(void)
{
    return depth ? stack[depth - 1] : NULL;
}

CUresult emulator_context_state(void)
{
    const struct CUctx_st *c = emulator_context();
    return c ? c->lost : CUDA_ERROR_INVALID_CONTEXT;
}

EXPORTED CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device)
{
    if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
    emulator_enter();
    primary.retained++;
    emulator_leave();
    *out = &primary;
    return CUDA_SUCCESS;
}

/* The last one takes all that is lost with it. */
EXPORTED CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    (void)device;
    emulator_enter();
    const bool held = primary.retained > 0;
    if (held && --primary.retained == 0) primary.lost = CUDA_SUCCESS;
    emulator_leave();
    return held ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

EXPORTED CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    if (!context || depth == MAX_DEPTH) return CUDA_ERROR_INVALID_CONTEXT;
    stack[depth++] = context;
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuCtxPopCurrent_v2(CUcontext *out)
{
    if (!depth) return CUDA_ERROR_INVALID_CONTEXT;
    *out = stack[--depth];
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuCtxGetDevice(CUdevice *out)
{
    *out = 0;
    return depth ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

/* For tests: a caller's own context. */
EXPORTED CUresult cuCtxCreate_v2(CUcontext *out, unsigned flags, CUdevice device)
{
    (void)flags;
    if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
    *out = calloc(1, sizeof **out);
    if (!*out) return CUDA_ERROR_OUT_OF_MEMORY;
    emulator_enter();
    emulator_counts.contexts++;
    emulator_leave();
    return cuCtxPushCurrent_v2(*out);
}

EXPORTED CUresult cuCtxDestroy_v2(CUcontext context)
{
    if (emulator_context() == context) depth--;
    emulator_enter();
    emulator_do_pending();
    emulator_counts.contexts--;
    emulator_leave();
    free(context);
    return CUDA_SUCCESS;
}

/* --- modules and functions: all device code is in this library, and known by name --- */

void emulated_register(struct emulated_kernel *kernel)
{
    kernel->next = kernels;
    kernels = kernel;
}

struct CUmod_st {
    const void *image;
};

/* Fat binaries begin with this. */
EXPORTED CUresult cuModuleLoadData(CUmodule *out, const void *image)
{
    const CUresult state = emulator_context_state();
    uint32_t magic;
    if (state != CUDA_SUCCESS) return state;
    memcpy(&magic, image, sizeof magic);
    if (magic != 0xba55ed50u) return CUDA_ERROR_INVALID_IMAGE;
    *out = malloc(sizeof **out);
    if (!*out) return CUDA_ERROR_OUT_OF_MEMORY;
    (*out)->image = image;
    emulator_enter();
    emulator_counts.modules++;
    emulator_leave();
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuModuleUnload(CUmodule module)
{
    free(module);
    emulator_enter();
    emulator_counts.modules--;
    emulator_leave();
    return emulator_context_state();
}

EXPORTED CUresult cuModuleGetFunction(CUfunction *out, CUmodule module, const char *name)
{
    (void)module;
    for (struct emulated_kernel *k = kernels; k; k = k->next)
        if (strcmp(k->name, name) == 0) {
            *out = (CUfunction)(void *)k;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_NOT_FOUND;
}

EXPORTED CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value)
{
    (void)function;
    const bool fits = attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES &&
                      value <= 227 * 1024; /* of functions that declare none themselves */
    return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORTED CUresult cuTensorMapEncodeTiled(CUtensorMap *out, CUtensorMapDataType type,
                                         cuuint32_t rank, void *data, const cuuint64_t *dims,
                                         const cuuint64_t *strides, const cuuint32_t *box,
                                         const cuuint32_t *steps, CUtensorMapInterleave interleave,
                                         CUtensorMapSwizzle swizzle,
                                         CUtensorMapL2promotion promotion,
                                         CUtensorMapFloatOOBfill fill)
{
    const cuuint32_t n_bytes = type == CU_TENSOR_MAP_DATA_TYPE_FLOAT32 ? 4 : 2;
    struct emulated_map map = {data,
                               {dims[0], dims[1], dims[2], rank > 3 ? dims[3] : 1},
                               {strides[0], strides[1], rank > 3 ? strides[2] : 0},
                               (int)n_bytes,
                               {(int)box[0], (int)box[1], (int)box[2], rank > 3 ? (int)box[3] : 1}};
    (void)promotion;
    if (rank < 3 || rank > 4 || interleave != CU_TENSOR_MAP_INTERLEAVE_NONE ||
        swizzle != CU_TENSOR_MAP_SWIZZLE_128B || fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE ||
        (uintptr_t)data % 16 || strides[0] % 16 || strides[1] % 16 || box[0] * n_bytes != 128 ||
        box[1] > 256 || box[2] > 256 || (box[2] > 1 && box[1] % 8) ||
        (rank > 3 && (box[3] > 256 || (box[3] > 1 && box[1] % 8) || strides[2] % 16)))
        return CUDA_ERROR_INVALID_VALUE;
    for (cuuint32_t i = 0; i < rank; i++)
        if (steps[i] != 1 || dims[i] == 0 || dims[i] > (cuuint64_t)1 << 32)
            return CUDA_ERROR_INVALID_VALUE;
    memset(out, 0, sizeof *out);
    memcpy(out, &map, sizeof map);
    return CUDA_SUCCESS;
}
