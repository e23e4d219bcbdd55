/* SPDX-License-Identifier: MIT
 * Emulated streams and graphs: work is done at once, or recorded and done when the graph is
 * launched. */
#include "emulator/emulator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

struct CUevent_st {
    double at; /* seconds, when it came to it */
};

static void free_work(struct CUgraph_st *g)
{
    while (g->first) {
        struct work *w = g->first;
        g->first = w->next;
        free(w);
    }
}

static bool copy_work(struct CUgraph_st *to, const struct work *w)
{
    struct work *copy = aligned_alloc(_Alignof(struct work), sizeof *copy);
    if (!copy) return false;
    *copy = *w;
    copy->next = NULL;
    if (!to->first) to->last = &to->first;
    *to->last = copy;
    to->last = &copy->next;
    return true;
}

/* What waits, in the order in which it was queued, whatever the stream. */
static struct CUgraph_st pending;
static struct CUctx_st *pending_context;

void emulator_do_pending(void)
{
    if (!pending.first) return;
    emulator_open_memory(true);
    for (const struct work *w = pending.first; w; w = w->next) emulator_do(pending_context, w);
    emulator_open_memory(false);
    free_work(&pending);
}

/* Copies from and to memory that is not shared are done at once. */
static bool may_wait(const struct work *w)
{
    return emulator_faults.late &&
           (w->kind != WORK_COPY || (emulator_is_known(w->to) && emulator_is_known(w->from)));
}

static CUresult do_or_keep(struct CUctx_st *context, const struct work *w)
{
    if (pending_context != context) emulator_do_pending();
    pending_context = context;
    if (may_wait(w)) return copy_work(&pending, w) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    emulator_do_pending();
    emulator_open_memory(true);
    emulator_do(context, w);
    emulator_open_memory(false);
    return CUDA_SUCCESS;
}

/* Now, later, or into what the stream records. */
static CUresult queue(CUstream stream, const struct work *w)
{
    const CUresult state = emulator_context_state();
    if (state != CUDA_SUCCESS) return state;
    if (!stream || stream->context != emulator_context()) return CUDA_ERROR_INVALID_HANDLE;
    CUresult result = CUDA_SUCCESS;
    emulator_enter();
    if (!stream->recording)
        result = do_or_keep(stream->context, w);
    else if (!copy_work(stream->recording, w))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    emulator_leave();
    return result;
}

/* Something that looks like the address of memory which is there, but which the device was not given:
 * on a real one the launch would fail. */
static bool has_strange_address(const struct work *w)
{
    const size_t n_bytes = w->kind == WORK_CALL ? w->n_bytes : w->kernel->params_bytes;
    for (size_t i = 0; i + 8 <= n_bytes; i += 8) {
        uintptr_t word;
        unsigned char there;
        memcpy(&word, w->params + i, sizeof word);
        if (word >> 40 < 0x50 || word >> 40 > 0x7f) continue;
        if ((uint32_t)word < 1u << 24)
            continue; /* a number, and what stands in the padding behind it */
        const uintptr_t page =
            word / (uintptr_t)sysconf(_SC_PAGESIZE) * (uintptr_t)sysconf(_SC_PAGESIZE);
        void *address = (void *)page;
        if (emulator_is_known((void *)word) || mincore(address, 1, &there) != 0) continue;
        (void)snprintf(emulator_message, sizeof emulator_message,
                       "%s: byte %zu of its parameters is an address of the host, %p, that was not "
                       "shared with the device",
                       w->kind == WORK_CALL ? w->name : w->kernel->name, i, (void *)word);
        return true;
    }
    return false;
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The caller holds the lock; the lost context does nothing more. */
void emulator_do(struct CUctx_st *context, const struct work *w)
{
    if (context->lost != CUDA_SUCCESS) return;
    if (w->kind == WORK_SET) memset(w->to, w->value, w->n_bytes);
    if (w->kind == WORK_COPY) memcpy(w->to, w->from, w->n_bytes);
    if (w->kind == WORK_EVENT) ((struct CUevent_st *)w->to)->at = seconds();
    if (w->kind != WORK_LAUNCH && w->kind != WORK_CALL) return;
    emulator_counts.launches++;
    if (emulator_faults.lose_at_launch && --emulator_faults.lose_at_launch == 0)
        context->lost = CUDA_ERROR_ILLEGAL_ADDRESS;
    else if (has_strange_address(w))
        context->lost = CUDA_ERROR_LAUNCH_FAILED;
    else if (w->kind == WORK_CALL)
        w->call(w->params);
    else if (!emulator_run_grid(w))
        context->lost = CUDA_ERROR_LAUNCH_FAILED;
}

EXPORTED CUresult cuStreamCreate(CUstream *out, unsigned flags)
{
    (void)flags;
    const CUresult state = emulator_context_state();
    if (state != CUDA_SUCCESS) return state;
    *out = calloc(1, sizeof **out);
    if (!*out) return CUDA_ERROR_OUT_OF_MEMORY;
    (*out)->context = emulator_context();
    emulator_enter();
    emulator_counts.streams++;
    emulator_leave();
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuStreamDestroy_v2(CUstream stream)
{
    emulator_enter();
    emulator_do_pending();
    free(stream);
    emulator_counts.streams--;
    emulator_leave();
    return emulator_context_state();
}

EXPORTED CUresult cuStreamSynchronize(CUstream stream)
{
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    if (stream->recording) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    emulator_enter();
    emulator_do_pending();
    emulator_leave();
    return emulator_context_state();
}

EXPORTED CUresult cuMemsetD8Async(CUdeviceptr memory, unsigned char value, size_t n,
                                  CUstream stream)
{
    const struct work w = {.kind = WORK_SET, .to = (void *)memory, .n_bytes = n, .value = value};
    return queue(stream, &w);
}

static CUresult copy(void *to, const void *from, size_t n, CUstream stream)
{
    const struct work w = {.kind = WORK_COPY, .to = to, .from = from, .n_bytes = n};
    return queue(stream, &w);
}

EXPORTED CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t n, CUstream stream)
{
    return copy((void *)to, from, n, stream);
}

EXPORTED CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t n, CUstream stream)
{
    return copy(to, (void *)from, n, stream);
}

EXPORTED CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream stream)
{
    return copy((void *)to, (void *)from, n, stream);
}

static bool is_cooperative(const CUlaunchConfig *c)
{
    bool is = false;
    for (unsigned i = 0; i < c->numAttrs; i++)
        if (c->attrs[i].id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
            is = c->attrs[i].value.cooperative != 0;
    return is;
}

/* Clusters are emulated along x only, and not in cooperative launches. */
static CUresult find_cluster(const CUlaunchConfig *c, struct work *w)
{
    for (unsigned i = 0; i < c->numAttrs; i++) {
        if (c->attrs[i].id != CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) continue;
        const unsigned x = c->attrs[i].value.clusterDim.x, y = c->attrs[i].value.clusterDim.y,
                       z = c->attrs[i].value.clusterDim.z;
        if (y != 1 || z != 1 || w->together) return CUDA_ERROR_NOT_SUPPORTED;
        if (x == 0 || x > 8) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
        if (c->gridDimX % x) return CUDA_ERROR_INVALID_VALUE;
        w->n_cluster = x;
    }
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction function, void **params,
                                   void **extra)
{
    struct work w = {.kind = WORK_LAUNCH,
                     .kernel = (const struct emulated_kernel *)(void *)function,
                     .grid = {c->gridDimX, c->gridDimY, c->gridDimZ},
                     .block = {c->blockDimX, c->blockDimY, c->blockDimZ},
                     .shared_bytes = c->sharedMemBytes,
                     .together = is_cooperative(c)};
    const size_t n_threads = (size_t)w.block.x * w.block.y * w.block.z;
    const bool fits = w.grid.x && w.grid.y && w.grid.z && w.grid.x <= 0x7fffffff &&
                      w.grid.y <= 65535 && w.grid.z <= 65535 && n_threads > 0 &&
                      n_threads <= 1024 && w.shared_bytes <= 227 * 1024;
    if (!fits || extra || w.kernel->params_bytes > sizeof w.params) return CUDA_ERROR_INVALID_VALUE;
    if (w.together && emulator_grid_blocks(&w) > (size_t)emulator_faults.multiprocessors)
        return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
    const CUresult cluster = find_cluster(c, &w);
    if (cluster != CUDA_SUCCESS) return cluster;
    memcpy(w.params, params[0], w.kernel->params_bytes);
    return queue(c->hStream, &w);
}

CUresult emulator_queue_call(CUstream stream, const char *name, void (*call)(const void *params),
                             const void *params, size_t n_bytes)
{
    struct work w = {.kind = WORK_CALL, .name = name, .call = call, .n_bytes = n_bytes};
    if (n_bytes > sizeof w.params) return CUDA_ERROR_INVALID_VALUE;
    memcpy(w.params, params, n_bytes);
    return queue(stream, &w);
}

/* --- events: the host's time when the work before them is done --- */

EXPORTED CUresult cuEventCreate(CUevent *out, unsigned flags)
{
    const CUresult state = emulator_context_state();
    if (state != CUDA_SUCCESS) return state;
    if (flags != CU_EVENT_DEFAULT && flags != CU_EVENT_DISABLE_TIMING)
        return CUDA_ERROR_INVALID_VALUE;
    *out = calloc(1, sizeof **out);
    if (!*out) return CUDA_ERROR_OUT_OF_MEMORY;
    emulator_enter();
    emulator_counts.events++;
    emulator_leave();
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuEventDestroy_v2(CUevent event)
{
    emulator_enter();
    emulator_do_pending();
    free(event);
    emulator_counts.events--;
    emulator_leave();
    return emulator_context_state();
}

EXPORTED CUresult cuEventRecord(CUevent event, CUstream stream)
{
    const struct work w = {.kind = WORK_EVENT, .to = event};
    return queue(stream, &w);
}

EXPORTED CUresult cuEventSynchronize(CUevent event)
{
    if (!event) return CUDA_ERROR_INVALID_HANDLE;
    emulator_enter();
    emulator_do_pending();
    emulator_leave();
    return emulator_context_state();
}

EXPORTED CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end)
{
    if (start->at == 0.0 || end->at == 0.0) return CUDA_ERROR_INVALID_HANDLE;
    *ms = (float)(1e3 * (end->at - start->at));
    return CUDA_SUCCESS;
}

/* --- graphs --- */

EXPORTED CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
    (void)mode;
    const CUresult state = emulator_context_state();
    if (state != CUDA_SUCCESS) return state;
    if (stream->recording) return CUDA_ERROR_ILLEGAL_STATE;
    stream->recording = calloc(1, sizeof *stream->recording);
    if (!stream->recording) return CUDA_ERROR_OUT_OF_MEMORY;
    emulator_enter();
    emulator_counts.graphs++;
    emulator_counts.captures++;
    emulator_leave();
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuStreamEndCapture(CUstream stream, CUgraph *out)
{
    if (!stream->recording) return CUDA_ERROR_ILLEGAL_STATE;
    *out = stream->recording;
    stream->recording = NULL;
    return emulator_context_state();
}

EXPORTED CUresult cuGraphDestroy(CUgraph graph)
{
    free_work(graph);
    free(graph);
    emulator_enter();
    emulator_counts.graphs--;
    emulator_leave();
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph graph,
                                              unsigned long long flags)
{
    (void)flags;
    CUgraphExec exec = calloc(1, sizeof *exec);
    if (!exec) return CUDA_ERROR_OUT_OF_MEMORY;
    for (const struct work *w = graph->first; w; w = w->next)
        if (!copy_work(&exec->graph, w)) {
            free_work(&exec->graph);
            free(exec);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    emulator_enter();
    emulator_counts.graph_execs++;
    emulator_leave();
    *out = exec;
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
    const CUresult state = emulator_context_state();
    if (state != CUDA_SUCCESS) return state;
    emulator_enter();
    emulator_counts.graph_launches++;
    if (!emulator_faults.late) emulator_open_memory(true);
    for (const struct work *w = exec->graph.first; w; w = w->next)
        if (emulator_faults.late)
            (void)do_or_keep(stream->context, w);
        else
            emulator_do(stream->context, w);
    if (!emulator_faults.late) emulator_open_memory(false);
    emulator_leave();
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    free_work(&exec->graph);
    free(exec);
    emulator_enter();
    emulator_counts.graph_execs--;
    emulator_leave();
    return CUDA_SUCCESS;
}
