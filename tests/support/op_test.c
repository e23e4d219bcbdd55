/* SPDX-License-Identifier: MIT
 * What op tests share. */
#include "support/op_test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

uint64_t rng_next(struct rng *r)
{
    uint64_t z = (r->state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

double rng_uniform(struct rng *r, double low, double high)
{
    return low + (high - low) * ((double)(rng_next(r) >> 11) * 0x1p-53);
}

double rng_normal(struct rng *r)
{
    const double u = rng_uniform(r, 1e-12, 1.0), v = rng_uniform(r, 0.0, 6.283185307179586);
    return sqrt(-2.0 * log(u)) * cos(v);
}

int64_t rng_below(struct rng *r, int64_t n)
{
    return (int64_t)(rng_next(r) % (uint64_t)n);
}

struct block {
    struct block *next;
    struct block *older, *newer; /* among all that live */
    void *map;
    size_t n_map, n_shared; /* with the GPU: whole pages from map on, or 0 */
};

/* A GPU, once a test has asked for one, until the program ends: what lives is shared with it. */
static struct {
    struct qrn_device *dev;
    bool looked_for;
    struct block *newest;
} gpu;

static void share(struct block *b, size_t body)
{
    struct qrn_error err;
    if (!gpu.dev || body == 0 || b->n_shared) return;
    pthread_mutex_lock(&gpu.dev->lock);
    const enum qrn_status status = gpu.dev->backend->copies->share(gpu.dev, b->map, body, &err);
    pthread_mutex_unlock(&gpu.dev->lock);
    if (status != QRN_OK) fail_msg("%s", err.text);
    b->n_shared = body;
}

static size_t body_of(const struct block *b)
{
    return b->n_map - (size_t)sysconf(_SC_PAGESIZE);
}

static void add_block(struct block *b)
{
    b->older = gpu.newest;
    b->newer = NULL;
    if (gpu.newest) gpu.newest->newer = b;
    gpu.newest = b;
    b->n_shared = 0;
    share(b, body_of(b));
}

static void remove_block(struct block *b)
{
    if (b->n_shared) {
        pthread_mutex_lock(&gpu.dev->lock);
        gpu.dev->backend->copies->unshare(gpu.dev, b->map);
        pthread_mutex_unlock(&gpu.dev->lock);
    }
    if (b->older) b->older->newer = b->newer;
    if (b->newer)
        b->newer->older = b->older;
    else
        gpu.newest = b->older;
}

/* The emulator's path, or "real"; "": none. */
static const char *which_gpu(void)
{
    const char *which = getenv("QRN_TEST_CUDA");
    return which ? which : QRN_TEST_EMULATOR;
}

bool op_test_gpu_is_real(void)
{
    return strcmp(which_gpu(), "real") == 0;
}

static struct qrn_device *open_gpu(bool apart, const char *blas, struct qrn_error *err)
{
    const char *which = which_gpu();
    struct qrn_device *dev;
    const bool real = op_test_gpu_is_real();
    if (!real && (!*which || access(which, R_OK) != 0)) return NULL;
    const struct qrn_device_options o = {
        .name = "cuda", .cuda_driver = real ? "" : which, .cuda_blas = blas, .cuda_apart = apart};
    if (qrn_device_open(&o, &dev, err) != QRN_OK) fail_msg("%s: %s", which, err->text);
    return dev;
}

struct qrn_device *op_test_open_gpu(struct qrn_error *err)
{
    return open_gpu(false, "", err);
}

struct qrn_device *op_test_open_gpu_apart(struct qrn_error *err)
{
    return open_gpu(true, "", err);
}

const char *op_test_blas(void)
{
    static char emulated[4096];
    const char *which = which_gpu();
    if (op_test_gpu_is_real()) return getenv("QRN_CUDA_BLAS");
    const char *name = strrchr(which, '/');
    (void)snprintf(emulated, sizeof emulated, "%.*slibcublaslt_emulated.so",
                   name ? (int)(name + 1 - which) : 0, which);
    return *which && access(emulated, R_OK) == 0 ? emulated : NULL;
}

struct qrn_device *op_test_open_gpu_blas(struct qrn_error *err)
{
    const char *blas = op_test_blas();
    return blas && *blas ? open_gpu(false, blas, err) : NULL;
}

static void close_gpu(void)
{
    for (struct block *b = gpu.newest; b; b = b->older)
        if (b->n_shared) gpu.dev->backend->copies->unshare(gpu.dev, b->map);
    qrn_device_close(gpu.dev);
}

/* Whether there is a GPU with a kernel for the op. */
static bool gpu_has(enum qrn_op_id op)
{
    struct qrn_error err;
    if (!gpu.looked_for) {
        gpu.looked_for = true;
        gpu.dev = op_test_open_gpu(&err);
        if (gpu.dev) (void)atexit(close_gpu);
        for (struct block *b = gpu.newest; b; b = b->older) share(b, body_of(b));
    }
    return gpu.dev && qrn_kernel_at(gpu.dev, op, 0);
}

void *mem_guarded(struct mem *m, size_t n_bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t body = (n_bytes + page - 1) / page * page;
    struct block *b = malloc(sizeof *b);
    assert_non_null(b);
    b->n_map = body + page;
    b->map = mmap(NULL, b->n_map, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(b->map != MAP_FAILED);
    assert_int_equal(mprotect((char *)b->map + body, page, PROT_NONE), 0);
    b->next = m->blocks;
    m->blocks = b;
    add_block(b);
    return (char *)b->map + body - n_bytes;
}

void mem_free_all(struct mem *m)
{
    for (struct block *b = m->blocks; b;) {
        struct block *next = b->next;
        remove_block(b);
        munmap(b->map, b->n_map);
        free(b);
        b = next;
    }
    m->blocks = NULL;
}

struct qrn_tensor mem_tensor(struct mem *m, enum qrn_dtype dtype, int n_dims, const int64_t *shape)
{
    struct qrn_tensor t = {.dtype = dtype, .n_dims = n_dims};
    int64_t stride = 1;
    for (int i = n_dims - 1; i >= 0; i--) {
        t.shape[i] = shape[i];
        t.stride[i] = stride;
        stride *= shape[i] ? shape[i] : 1;
    }
    assert_true(qrn_tensor_extent(&t, &t.n_bytes));
    t.data = mem_guarded(m, t.n_bytes);
    return t;
}

struct qrn_tensor mem_filled(struct mem *m, struct rng *r, double scale, int n_dims,
                             const int64_t *shape)
{
    const struct qrn_tensor t = mem_tensor(m, QRN_F32, n_dims, shape);
    const int64_t n = qrn_tensor_n_elements(&t);
    for (int64_t i = 0; i < n; i++) ((float *)t.data)[i] = (float)(rng_normal(r) * scale);
    return t;
}

void devices_open(struct devices *d, int n_threads)
{
    static const char *const disabled[] = {"",     "amx_tile", "avx512_vnni", "avx512f",
                                           "avx2", "i8mm",     "dotprod",     "neon"};
    d->n = 0;
    for (size_t i = 0; i < sizeof disabled / sizeof *disabled; i++) {
        struct qrn_error err;
        struct qrn_device *dev;
        const struct qrn_device_options o = {.cpu_disable = disabled[i], .n_threads = n_threads};
        if (qrn_device_open(&o, &dev, &err) != QRN_OK) fail_msg("%s", err.text);
        bool seen = false;
        for (size_t j = 0; j < d->n; j++) seen = seen || d->dev[j]->features == dev->features;
        if (seen)
            qrn_device_close(dev);
        else
            d->dev[d->n++] = dev;
    }
}

void devices_open_for(struct devices *d, int n_threads, enum qrn_op_id op)
{
    struct qrn_error err;
    devices_open(d, n_threads);
    if (!gpu_has(op)) return;
    assert_true(d->n + 1 < MAX_DEVICES);
    d->dev[d->n] = op_test_open_gpu(&err);
    assert_non_null(d->dev[d->n]);
    d->n++;
    struct qrn_device *blas = op == QRN_OP_matmul ? op_test_open_gpu_blas(&err) : NULL;
    if (blas) d->dev[d->n++] = blas;
}

void devices_close(struct devices *d)
{
    for (size_t i = 0; i < d->n; i++) qrn_device_close(d->dev[i]);
    d->n = 0;
}

struct qrn_device *op_test_open_gpu_for(enum qrn_op_id op)
{
    struct qrn_error err;
    struct devices d;
    devices_open_for(&d, 1, op);
    devices_close(&d);
    return op_test_open_gpu(&err);
}

enum { MAX_ARGS = 4096, MAX_OPERANDS = 32 };

/* Copies of the memory behind written operands, to restore it between kernels. */
struct saved {
    void *bytes[MAX_OPERANDS];
};

static struct qrn_tensor *tensor_in(const struct qrn_op *op, size_t i, void *args)
{
    return (struct qrn_tensor *)(void *)((char *)args + op->operands[i].offset);
}

static bool is_float(const struct qrn_tensor *t)
{
    return t->dtype == QRN_F32 || t->dtype == QRN_F16 || t->dtype == QRN_BF16;
}

static bool writes(const struct qrn_op *op, size_t i, void *args)
{
    return (op->operands[i].access & QRN_WRITES) && tensor_in(op, i, args)->n_dims &&
           qrn_tensor_n_elements(tensor_in(op, i, args)) > 0;
}

static bool also_read(const struct qrn_op *op, size_t i, void *args)
{
    if (op->operands[i].access & QRN_READS) return true;
    for (size_t j = 0; j < op->n_operands; j++)
        if ((op->operands[j].access & QRN_READS) &&
            tensor_in(op, j, args)->data == tensor_in(op, i, args)->data &&
            tensor_in(op, j, args)->n_dims)
            return true;
    return false;
}

/* args with every written operand in fresh memory, as F64 where it is a float: what reference wants. */
static void make_reference_args(struct mem *m, const struct qrn_op *op, void *args)
{
    for (size_t i = 0; i < op->n_operands; i++) {
        struct qrn_tensor *t = tensor_in(op, i, args);
        if (!writes(op, i, args)) continue;
        const struct qrn_tensor old = *t;
        if (op->operands[i].access &
            QRN_READS) { /* in place: keep the type, start from its values */
            *t = mem_tensor(m, is_float(&old) ? QRN_F64 : old.dtype, old.n_dims, old.shape);
            const int64_t n = qrn_tensor_n_elements(t);
            for (int64_t e = 0; e < n; e++) qrn_ref_set_flat(t, e, qrn_ref_get_flat(&old, e));
        } else {
            *t = mem_tensor(m, is_float(&old) ? QRN_F64 : old.dtype, old.n_dims, old.shape);
        }
    }
}

static void poison(const struct qrn_tensor *t)
{
    const int64_t n = qrn_tensor_n_elements(t);
    for (int64_t i = 0; i < n; i++) qrn_ref_set_flat(t, i, is_float(t) ? (double)NAN : 111.0);
}

static void compare(const struct qrn_tensor *got, const struct qrn_tensor *want, double tolerance,
                    const char *kernel, const char *operand, const char *what)
{
    const int64_t n = qrn_tensor_n_elements(got);
    double squares = 0.0, worst = 0.0;
    int64_t at = -1;
    for (int64_t i = 0; i < n; i++) {
        const double w = qrn_ref_get_flat(want, i);
        if (isfinite(w)) squares += w * w;
    }
    const double rms = sqrt(squares / (double)n), scale = rms > 1e-30 ? rms : 1.0;
    for (int64_t i = 0; i < n; i++) {
        const double g = qrn_ref_get_flat(got, i), w = qrn_ref_get_flat(want, i);
        double e = fabs(g - w) / scale;
        if (isnan(g) != isnan(w)) e = INFINITY;
        if (isnan(g) && isnan(w)) e = 0.0;
        if (g == w) e = 0.0;
        if (e > worst || isnan(e)) {
            worst = e;
            at = i;
        }
    }
    const double allowed = is_float(got) ? tolerance : 0.0;
    if (!(worst <= allowed))
        fail_msg("%s, %s: %s[%lld] is %.9g, wants %.9g: %.3g of the rms, %.3g allowed", kernel,
                 what, operand, (long long)at, qrn_ref_get_flat(got, at),
                 qrn_ref_get_flat(want, at), worst, allowed);
}

static uint64_t mix(uint64_t h, const void *data, size_t n_bytes)
{
    const unsigned char *from = data;
    for (size_t i = 0; i < n_bytes; i += 8) {
        uint64_t word = 0;
        if (n_bytes - i >= 8)
            memcpy(&word, from + i, 8);
        else
            memcpy(&word, from + i, n_bytes - i);
        h = (h ^ word) * 0x9e3779b97f4a7c15u;
        h ^= h >> 29;
    }
    return h;
}

/* How b lies to a: only views that share memory depend on it. */
static intptr_t distance(const struct qrn_tensor *a, const struct qrn_tensor *b)
{
    const uintptr_t at_a = (uintptr_t)a->data, at_b = (uintptr_t)b->data;
    const bool apart = at_a + a->n_bytes <= at_b || at_b + b->n_bytes <= at_a;
    return apart ? INTPTR_MAX : (intptr_t)(at_b - at_a);
}

/* A number of all that a kernel is given; where in memory it is does not count. */
static uint64_t number_of_case(const struct qrn_device *dev, const struct qrn_op *op,
                               const void *args, double tolerance)
{
    char own[MAX_ARGS];
    uint64_t h = mix((uint64_t)dev->n_threads, &tolerance, sizeof tolerance);
    memcpy(own, args, op->args_bytes);
    for (size_t i = 0; i < op->n_operands; i++) {
        const struct qrn_tensor *t = tensor_in(op, i, own);
        if (t->n_dims == 0) continue;
        for (size_t j = 0; j < i; j++) {
            const intptr_t from = distance(tensor_in(op, j, own), t);
            h = mix(h, &from, sizeof from);
        }
        if (!writes(op, i, own) || also_read(op, i, own)) h = mix(h, t->data, t->n_bytes);
    }
    for (size_t i = 0; i < op->n_operands; i++) {
        struct qrn_tensor *t = tensor_in(op, i, own);
        t->data = (void *)((uintptr_t)t->data % 64);
    }
    return mix(h, own, op->args_bytes);
}

/* Whether this was asked before with that number; what is forgotten is done again. */
static bool done_before(uint64_t number)
{
    static uint64_t done[1 << 14];
    uint64_t *place = &done[number >> 50];
    const bool found = *place == number;
    *place = number;
    return found;
}

/* One kernel on poisoned outputs; got are its arguments, want those of the reference. */
static void run_and_compare(struct qrn_device *dev, const struct qrn_kernel *k,
                            const struct qrn_op *op, void *got, void *want,
                            const struct saved *before, double tolerance, const char *what)
{
    struct qrn_error err;
    for (size_t i = 0; i < op->n_operands; i++)
        if (writes(op, i, got) && !also_read(op, i, got)) poison(tensor_in(op, i, got));
    if (qrn_kernel_run(dev, k, got, &err) != QRN_OK)
        fail_msg("%s, %s: %s", k->name, what, err.text);
    for (size_t i = 0; i < op->n_operands; i++)
        if (writes(op, i, got) && !(op->operands[i].access & QRN_OPAQUE))
            compare(tensor_in(op, i, got), tensor_in(op, i, want), tolerance, k->name,
                    op->operands[i].name, what);
    for (size_t i = 0; i < op->n_operands; i++)
        if (writes(op, i, got))
            memcpy(tensor_in(op, i, got)->data, before->bytes[i], tensor_in(op, i, got)->n_bytes);
}

/* Whether the kernels of a GPU say that there are calls which they do not serve. */
static bool gpu_leaves_out(const struct qrn_device *dev, enum qrn_op_id id)
{
    const struct qrn_kernel *k;
    if (qrn_device_host_reads(dev)) return false;
    for (size_t i = 0; (k = qrn_kernel_at(dev, id, i)) != NULL; i++)
        if (!k->serves) return false;
    return true;
}

void op_test_against_reference(struct qrn_device *dev, enum qrn_op_id id, const void *args,
                               double tolerance, const char *what)
{
    const struct qrn_op *op = qrn_op(id);
    struct qrn_error err = {0};
    struct mem mem = {0};
    struct saved before = {{0}};
    char want[MAX_ARGS], got[MAX_ARGS];
    assert_true(op->args_bytes <= MAX_ARGS && op->n_operands <= MAX_OPERANDS);
    if (qrn_op_check(op, args, &err) != QRN_OK) fail_msg("%s: %s", what, err.text);
    const uint64_t number = number_of_case(dev, op, args, tolerance);
    memcpy(got, args, op->args_bytes);
    size_t n_served = 0;
    bool has_reference = false;
    const struct qrn_kernel *k;
    for (size_t j = 0; (k = qrn_kernel_at(dev, id, j)) != NULL; j++) {
        if (k->supports && !k->supports(args)) continue;
        n_served++;
        if (done_before(mix(number, &k, sizeof k))) continue;
        if (!has_reference) {
            memcpy(want, args, op->args_bytes);
            make_reference_args(&mem, op, want);
            op->reference(want);
            for (size_t i = 0; i < op->n_operands; i++)
                if (writes(op, i, got)) {
                    const struct qrn_tensor *t = tensor_in(op, i, got);
                    before.bytes[i] = mem_guarded(&mem, t->n_bytes);
                    memcpy(before.bytes[i], t->data, t->n_bytes);
                }
            has_reference = true;
        }
        run_and_compare(dev, k, op, got, want, &before, tolerance, what);
    }
    if (n_served == 0 && !gpu_leaves_out(dev, id))
        fail_msg("%s: no kernel of %s supports it", what, dev->bits);
    mem_free_all(&mem);
}

/* One way to run args: directly, or recorded and submitted once or more. */
static void run_once(const struct qrn_device_options *o, int n_submits, enum qrn_op_id id,
                     const void *args, const struct saved *before, const char *what)
{
    const struct qrn_op *op = qrn_op(id);
    struct qrn_error err = {0};
    struct qrn_device *dev = NULL;
    struct qrn_encoder *enc = NULL;
    char own[MAX_ARGS];
    memcpy(own, args, op->args_bytes);
    if (o && qrn_device_open(o, &dev, &err) != QRN_OK) fail_msg("%s: %s", what, err.text);
    if (!o) dev = op_test_open_gpu(&err);
    enum qrn_status status = QRN_OK;
    if (n_submits) {
        assert_int_equal(qrn_encoder_create(dev, &enc, &err), QRN_OK);
        qrn_op_record(enc, id, args);
    }
    for (int i = 0; i < (n_submits ? n_submits : 1) && status == QRN_OK; i++) {
        for (size_t k = 0; k < op->n_operands; k++)
            if (writes(op, k, own))
                memcpy(tensor_in(op, k, own)->data, before->bytes[k],
                       tensor_in(op, k, own)->n_bytes);
        status = enc ? qrn_encoder_submit(enc, &err) : qrn_op_call(dev, id, args, &err);
    }
    qrn_encoder_destroy(enc);
    qrn_device_close(dev);
    if (status != QRN_OK) fail_msg("%s: %s", what, err.text);
}

/* A GPU's bits are its own; they too are the same each time. */
static void same_bits_on_gpu(enum qrn_op_id id, void *own, const struct saved *before,
                             const struct saved *first, const char *what)
{
    const struct qrn_op *op = qrn_op(id);
    const struct qrn_kernel *k;
    if (!gpu_has(id) || qrn_kernel_choose(gpu.dev, id, own, &k, NULL) != QRN_OK) return;
    for (int run = 0; run < 3; run++) { /* directly; recorded; replayed twice */
        run_once(NULL, run == 2 ? 3 : run, id, own, before, what);
        for (size_t i = 0; i < op->n_operands; i++) {
            if (!writes(op, i, own)) continue;
            const struct qrn_tensor *t = tensor_in(op, i, own);
            if (run == 0)
                memcpy(first->bytes[i], t->data, t->n_bytes);
            else if (memcmp(first->bytes[i], t->data, t->n_bytes) != 0)
                fail_msg("%s: %s differs on the GPU when %s", what, op->operands[i].name,
                         run == 1 ? "recorded" : "replayed");
        }
    }
}

void op_test_same_bits(enum qrn_op_id id, const void *args, const char *what)
{
    const struct qrn_op *op = qrn_op(id);
    struct mem mem = {0};
    struct saved before = {{0}}, first = {{0}};
    char own[MAX_ARGS];
    memcpy(own, args, op->args_bytes);
    for (size_t i = 0; i < op->n_operands; i++)
        if (writes(op, i, own)) {
            const struct qrn_tensor *t = tensor_in(op, i, own);
            before.bytes[i] = mem_guarded(&mem, t->n_bytes);
            first.bytes[i] = mem_guarded(&mem, t->n_bytes);
            memcpy(before.bytes[i], t->data, t->n_bytes);
        }
    for (int run = 0; run < 5; run++) { /* 1, 2, 3 threads; recorded, submitted once; twice */
        const struct qrn_device_options o = {.n_threads = run < 3 ? run + 1 : 2};
        run_once(&o, run < 3 ? 0 : run - 2, id, args, &before, what);
        for (size_t i = 0; i < op->n_operands; i++) {
            if (!writes(op, i, own)) continue;
            const struct qrn_tensor *t = tensor_in(op, i, own);
            if (run == 0)
                memcpy(first.bytes[i], t->data, t->n_bytes);
            else if (memcmp(first.bytes[i], t->data, t->n_bytes) != 0)
                fail_msg("%s: %s differs from the call with one thread (run %d)", what,
                         op->operands[i].name, run);
        }
    }
    same_bits_on_gpu(id, own, &before, &first, what);
    for (size_t i = 0; i < op->n_operands; i++)
        if (writes(op, i, own))
            memcpy(tensor_in(op, i, own)->data, before.bytes[i], tensor_in(op, i, own)->n_bytes);
    mem_free_all(&mem);
}

void op_test_fails(struct qrn_device *dev, enum qrn_op_id id, const void *args,
                   enum qrn_status status, const char *fragment)
{
    struct qrn_error err = {0};
    const enum qrn_status got = qrn_op_call(dev, id, args, &err);
    if (got != status || !strstr(err.text, fragment))
        fail_msg("wants %s with \"%s\", got %s: %s", qrn_status_name(status), fragment,
                 qrn_status_name(got), err.text);
}
