/* SPDX-License-Identifier: MIT
 * Running steps on the device's stream; recordings as graphs of the driver.
 *
 * Making a graph costs more than launching its kernels once.  What is submitted for the first time is
 * queued kernel by kernel, for it may be a prompt of a length that never comes again; the second time
 * makes the graph. */
#include "backends/cuda/cublaslt.h"
#include "backends/cuda/joints.h"
#include "backends/cuda/shared.h"

#include "base/memory.h"

/* Some steps of a recording. */
struct graph {
    struct graph *next;
    size_t begin, end;
    uint64_t scratch_generation; /* whose address it has in it */
    CUgraphExec exec;            /* NULL: submitted once */
};

struct recorded {
    struct graph *graphs;
};

/* Queues the first step, or as many as a joint does; returns how many. */
static size_t queue_next(struct qrn_cuda_stream *s, const struct qrn_step *steps, size_t n_steps)
{
    const struct qrn_cuda_joint *joint = qrn_cuda_joint_of(s->cuda, steps, n_steps);
    const size_t n = joint ? joint->n_steps : 1;
    s->scratch = s->cuda->scratch + steps->scratch_at;
    s->numbers_stay = s->in_graph;
    for (size_t i = 0; i < n; i++) s->numbers_stay = s->numbers_stay && !steps[i].check_late;
    s->step = s->in_graph && !joint ? steps : NULL;
    if (joint)
        joint->run(s, steps);
    else
        steps->kernel->run(s, steps->args);
    return n;
}

/* Whether all products are of few rows: their kernels have one block on each multiprocessor, which leaves
 * room for blocks of the next launch, or say when that may come.  Those of many rows fill multiprocessors, and what
 * comes early takes turns with them. */
static bool have_few_rows(const struct qrn_step *steps, size_t n_steps)
{
    static const struct qrn_kernel *const few[] = {
        &qrn_cuda_matmul_stream, &qrn_cuda_matmul_few,       &qrn_cuda_matmul_several,
        &qrn_cuda_matmul_parts,  &qrn_cuda_matmul_whole,     &qrn_cuda_matmul_registers,
        &qrn_cuda_matmul_floats, &qrn_cuda_matmul_id_stream, &qrn_cuda_matmul_id_floats};
    for (size_t i = 0; i < n_steps; i++) {
        const struct qrn_kernel *k = steps[i].kernel;
        size_t n = 0;
        if (k->op != QRN_OP_matmul && k->op != QRN_OP_matmul_id) continue;
        while (n < sizeof few / sizeof *few && few[n] != k) n++;
        if (n == sizeof few / sizeof *few) return false;
    }
    return true;
}

/* Queues steps begin .. end - 1 and their copies; the first failure stays in s. */
static void queue(struct qrn_cuda_stream *s, const struct qrn_recording *r, size_t begin,
                  size_t end)
{
    s->overlaps = s->cuda->overlaps && have_few_rows(r->steps + begin, end - begin);
    if (begin == 0) {
        qrn_cuda_launch_copy(s, &r->first);
        s->after_copy = r->first.n_bytes > 0;
    }
    for (size_t i = begin; i < end && s->result == CUDA_SUCCESS;)
        i += queue_next(s, r->steps + i, end - i);
    if (end == r->n_steps) qrn_cuda_launch_copy(s, &r->last);
}

static enum qrn_status status_of(struct qrn_cuda_stream *s, struct qrn_error *err)
{
    if (s->blas_status) return qrn_cuda_blas_status(s, err);
    return qrn_cuda_status(s->cuda, s->result, s->failed ? s->failed : "waiting for the device",
                           err);
}

/* Also after a failure: nothing of a call may be under way when it returns.  That the device is lost
 * is said before what cuBLASLt makes of it. */
static enum qrn_status finish(struct qrn_cuda_stream *s, struct qrn_error *err)
{
    const CUresult r = s->cuda->driver.stream_synchronize(s->cuda->stream);
    if (s->result == CUDA_SUCCESS || (s->blas_status && r != CUDA_SUCCESS)) {
        s->result = r;
        s->blas_status = 0;
    }
    return status_of(s, err);
}

static enum qrn_status run_steps(struct qrn_device *dev, const struct qrn_recording *r,
                                 size_t begin, size_t end, bool waits, struct qrn_error *err)
{
    struct qrn_cuda *cuda = dev->impl;
    struct qrn_cuda_stream s = {.cuda = cuda};
    QRN_TRY(qrn_cuda_enter(cuda, err));
    enum qrn_status status = qrn_cuda_reserve_scratch(cuda, r->scratch_bytes, err);
    if (status == QRN_OK) {
        queue(&s, r, begin, end);
        status = waits ? finish(&s, err) : status_of(&s, err);
    }
    qrn_cuda_leave(cuda);
    return status;
}

enum qrn_status qrn_cuda_execute(struct qrn_device *dev, const struct qrn_step *steps,
                                 size_t n_steps, size_t scratch_bytes, struct qrn_error *err)
{
    const struct qrn_recording r = {
        .steps = steps, .n_steps = n_steps, .scratch_bytes = scratch_bytes};
    return run_steps(dev, &r, 0, n_steps, true, err);
}

/* As execute, without waiting. */
static enum qrn_status queue_steps(struct qrn_device *dev, const struct qrn_step *steps,
                                   size_t n_steps, size_t scratch_bytes, struct qrn_error *err)
{
    const struct qrn_recording r = {
        .steps = steps, .n_steps = n_steps, .scratch_bytes = scratch_bytes};
    return run_steps(dev, &r, 0, n_steps, false, err);
}

static struct graph *find_graph(struct recorded *r, size_t begin, size_t end)
{
    struct graph *g = r->graphs;
    while (g && (g->begin != begin || g->end != end)) g = g->next;
    return g;
}

static void free_graph(struct qrn_cuda *cuda, struct graph *g)
{
    if (g->exec) (void)cuda->driver.graph_exec_destroy(g->exec);
    qrn_free(cuda->allocator, g, sizeof *g);
}

/* The steps as a graph of the driver.  Modules are loaded before: recording allows no such
 * thing. */
static enum qrn_status capture(struct qrn_cuda *cuda, const struct qrn_recording *r, size_t begin,
                               size_t end, CUgraphExec *out, struct qrn_error *err)
{
    const struct qrn_cuda_driver *d = &cuda->driver;
    struct qrn_cuda_stream s = {.cuda = cuda, .looks_up = true, .in_graph = true};
    CUgraph graph = NULL;
    queue(&s, r, begin, end);
    s.looks_up = false;
    QRN_TRY(status_of(&s, err));
    QRN_TRY(qrn_cuda_status(cuda, d->capture_begin(cuda->stream, CU_STREAM_CAPTURE_MODE_RELAXED),
                            "beginning to record", err));
    queue(&s, r, begin, end);
    const CUresult ended = d->capture_end(cuda->stream, &graph);
    if (s.result == CUDA_SUCCESS) s.result = ended;
    if (s.result == CUDA_SUCCESS) s.result = d->graph_instantiate(out, graph, 0);
    if (graph) (void)d->graph_destroy(graph);
    if (!s.failed) s.failed = "recording";
    return status_of(&s, err);
}

static enum qrn_status replay(struct qrn_cuda *cuda, const struct qrn_recording *r, size_t begin,
                              size_t end, struct recorded *recorded, struct qrn_error *err)
{
    struct graph *g = find_graph(recorded, begin, end);
    if (!g) {
        struct qrn_cuda_stream s = {.cuda = cuda};
        g = qrn_alloc_zeroed(cuda->allocator, sizeof *g);
        if (!g) return qrn_fail_memory(err, sizeof *g, "a graph");
        *g = (struct graph){.next = recorded->graphs, .begin = begin, .end = end};
        recorded->graphs = g;
        queue(&s, r, begin, end);
        return status_of(&s, err);
    }
    if (g->exec && g->scratch_generation != cuda->scratch_generation) {
        (void)cuda->driver.graph_exec_destroy(g->exec);
        g->exec = NULL;
    }
    if (!g->exec) QRN_TRY(capture(cuda, r, begin, end, &g->exec, err));
    g->scratch_generation = cuda->scratch_generation;
    return qrn_cuda_status(cuda, cuda->driver.graph_launch(g->exec, cuda->stream),
                           "launching a recording", err);
}

static enum qrn_status submit(struct qrn_device *dev, const struct qrn_recording *r, size_t begin,
                              size_t end, void **recorded, struct qrn_error *err)
{
    struct qrn_cuda *cuda = dev->impl;
    /* The driver records no legacy stream, which a caller may have given. */
    if (cuda->stream == CU_STREAM_LEGACY)
        return run_steps(dev, r, begin, end, false, err);
    if (!*recorded) *recorded = qrn_alloc_zeroed(cuda->allocator, sizeof(struct recorded));
    if (!*recorded) return qrn_fail_memory(err, sizeof(struct recorded), "a recording");
    QRN_TRY(qrn_cuda_enter(cuda, err));
    enum qrn_status status = qrn_cuda_reserve_scratch(cuda, r->scratch_bytes, err);
    if (status == QRN_OK) status = replay(cuda, r, begin, end, *recorded, err);
    qrn_cuda_leave(cuda);
    return status;
}

static void forget(struct qrn_device *dev, void *recorded)
{
    struct qrn_cuda *cuda = dev->impl;
    struct recorded *r = recorded;
    const bool entered = cuda->driver.context_push(cuda->context) == CUDA_SUCCESS;
    while (r->graphs) {
        struct graph *g = r->graphs;
        r->graphs = g->next;
        free_graph(cuda, g);
    }
    if (entered) qrn_cuda_leave(cuda);
    qrn_free(cuda->allocator, r, sizeof *r);
}

const struct qrn_replays qrn_cuda_replays = {
    .queue = queue_steps,
    .submit = submit,
    .forget = forget,
    .copy = qrn_cuda_queue_copy,
    .copy_shared = qrn_cuda_copy_shared,
    .note = qrn_cuda_note,
    .wait_noted = qrn_cuda_wait_noted,
    .clock_start = qrn_cuda_clock_start,
    .clock_stop = qrn_cuda_clock_stop,
};
