/* SPDX-License-Identifier: MIT
 * Modules are loaded and functions looked up when they are first launched. */
#include "backends/cuda/launch.h"

#include <limits.h>
#include <string.h>
#include "base/memory.h"

struct function {
    const struct qrn_cuda_function *key; /* NULL: free */
    CUfunction handle;
};

struct module {
    const unsigned char *image;
    CUmodule handle;
};

struct qrn_cuda_functions {
    struct function *table; /* found by address, open addressing */
    size_t n_table, n_used; /* n_table: a power of two, above twice n_used */
    struct module *modules;
    size_t n_modules, n_modules_reserved;
};

enum { FIRST_TABLE = 64 };

enum qrn_status qrn_cuda_functions_create(struct qrn_cuda *cuda, struct qrn_error *err)
{
    struct qrn_cuda_functions *f = qrn_alloc_zeroed(cuda->allocator, sizeof *f);
    struct function *table = qrn_alloc_zeroed(cuda->allocator, FIRST_TABLE * sizeof *table);
    if (!f || !table) {
        qrn_free(cuda->allocator, f, sizeof *f);
        qrn_free(cuda->allocator, table, FIRST_TABLE * sizeof *table);
        return qrn_fail_memory(err, FIRST_TABLE * sizeof *table, "a table of functions");
    }
    f->table = table;
    f->n_table = FIRST_TABLE;
    cuda->functions = f;
    return QRN_OK;
}

void qrn_cuda_functions_destroy(struct qrn_cuda *cuda)
{
    struct qrn_cuda_functions *f = cuda->functions;
    if (!f) return;
    for (size_t i = 0; i < f->n_modules; i++)
        (void)cuda->driver.module_unload(f->modules[i].handle);
    qrn_free(cuda->allocator, f->modules, f->n_modules_reserved * sizeof *f->modules);
    qrn_free(cuda->allocator, f->table, f->n_table * sizeof *f->table);
    qrn_free(cuda->allocator, f, sizeof *f);
    cuda->functions = NULL;
}

/* Where key is, or would be. */
static struct function *place_of(struct function *table, size_t n,
                                 const struct qrn_cuda_function *key)
{
    size_t i = (size_t)((uintptr_t)key / 16 * 0x9e3779b97f4a7c15u >> 20);
    for (;; i++) {
        struct function *place = &table[i & (n - 1)];
        if (place->key == key || !place->key) return place;
    }
}

static bool grow_table(struct qrn_cuda *cuda)
{
    struct qrn_cuda_functions *f = cuda->functions;
    if (2 * (f->n_used + 1) <= f->n_table) return true;
    const size_t n = 2 * f->n_table;
    struct function *bigger = qrn_alloc_zeroed(cuda->allocator, n * sizeof *bigger);
    if (!bigger) return false;
    for (size_t i = 0; i < f->n_table; i++)
        if (f->table[i].key) *place_of(bigger, n, f->table[i].key) = f->table[i];
    qrn_free(cuda->allocator, f->table, f->n_table * sizeof *f->table);
    f->table = bigger;
    f->n_table = n;
    return true;
}

static CUresult module_of(struct qrn_cuda *cuda, const unsigned char *image, CUmodule *out)
{
    struct qrn_cuda_functions *f = cuda->functions;
    for (size_t i = 0; i < f->n_modules; i++)
        if (f->modules[i].image == image) {
            *out = f->modules[i].handle;
            return CUDA_SUCCESS;
        }
    if (f->n_modules == f->n_modules_reserved) {
        const size_t want = 2 * f->n_modules_reserved + 16;
        struct module *bigger =
            qrn_realloc(cuda->allocator, f->modules, f->n_modules_reserved * sizeof *f->modules,
                        want * sizeof *f->modules);
        if (!bigger) return CUDA_ERROR_OUT_OF_MEMORY;
        f->modules = bigger;
        f->n_modules_reserved = want;
    }
    const CUresult r = cuda->driver.module_load(out, image);
    if (r == CUDA_SUCCESS) f->modules[f->n_modules++] = (struct module){image, *out};
    return r;
}

static CUresult look_up(struct qrn_cuda *cuda, const struct qrn_cuda_function *function,
                        CUfunction *out)
{
    struct qrn_cuda_functions *f = cuda->functions;
    const struct function *known = place_of(f->table, f->n_table, function);
    *out = known->handle;
    if (known->key) return CUDA_SUCCESS;
    CUmodule module;
    if (!grow_table(cuda)) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult r = module_of(cuda, function->image, &module);
    if (r == CUDA_SUCCESS) r = cuda->driver.module_function(out, module, function->name);
    if (r == CUDA_SUCCESS && function->max_shared_bytes)
        r = cuda->driver.function_set_attribute(
            *out, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, function->max_shared_bytes);
    if (r == CUDA_SUCCESS && function->most_shared) /* a wish */
        (void)cuda->driver.function_set_attribute(
            *out, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 100);
    if (r != CUDA_SUCCESS) return r;
    *place_of(f->table, f->n_table, function) = (struct function){function, *out};
    f->n_used++;
    return CUDA_SUCCESS;
}

bool qrn_cuda_step_operand_stays(const struct qrn_cuda_stream *s, const struct qrn_step *step,
                                 const char *name)
{
    if (!s->in_graph) return false;
    for (size_t i = 0; i < step->op->n_operands; i++)
        if (strcmp(step->op->operands[i].name, name) == 0) return step->stays >> i & 1;
    return false;
}

bool qrn_cuda_operand_stays(const struct qrn_cuda_stream *s, const char *name)
{
    return s->step && qrn_cuda_step_operand_stays(s, s->step, name);
}

void qrn_cuda_launch(struct qrn_cuda_stream *s, const struct qrn_cuda_function *function,
                     struct qrn_cuda_grid grid, const void *params)
{
    union {
        const void *in;
        void *out;
    } p = {.in = params};
    CUfunction handle;
    CUlaunchAttribute attributes[3];
    unsigned n_attributes = 0;
    if (s->overlaps && !s->after_copy) /* it begins beside what was launched before it, for which its code waits */
        attributes[n_attributes++] =
            (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                                .value.programmaticStreamSerializationAllowed = 1};
    if (grid.meets && !s->cuda->alone)
        attributes[n_attributes++] =
            (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value.cooperative = 1};
    if (grid.n_cluster)
        attributes[n_attributes++] =
            (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
                                .value.clusterDim = {grid.n_cluster, 1, 1}};
    if (s->result != CUDA_SUCCESS || grid.n_blocks <= 0) return;
    s->result =
        grid.n_blocks <= INT_MAX ? look_up(s->cuda, function, &handle) : CUDA_ERROR_INVALID_VALUE;
    s->lets_next = grid.lets_next;
    if (s->result == CUDA_SUCCESS && !s->looks_up) {
        const CUlaunchConfig config = {.gridDimX = (unsigned)grid.n_blocks,
                                       .gridDimY = grid.n_blocks_y ? grid.n_blocks_y : 1,
                                       .gridDimZ = grid.n_blocks_z ? grid.n_blocks_z : 1,
                                       .blockDimX = grid.n_threads,
                                       .blockDimY = 1,
                                       .blockDimZ = 1,
                                       .sharedMemBytes = grid.shared_bytes,
                                       .hStream = s->cuda->stream,
                                       .attrs = attributes,
                                       .numAttrs = n_attributes};
        s->result = s->cuda->driver.launch(&config, handle, &p.out, NULL);
        s->after_copy = false;
    }
    if (s->result != CUDA_SUCCESS) s->failed = function->name;
}
