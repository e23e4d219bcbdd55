/* SPDX-License-Identifier: MIT
 * Memory that runs out: the n-th allocation of a whole session fails, for every n of a toy and many n of
 * fairy.  The call it hits says so, nothing leaks, the same call works when repeated, and the logits at
 * the end have the same bits as ever. */
#include "support/model_test.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <quern/text.h>
#include "support/op_test.h"
#include "support/sanitized.h"
#include "support/temp.h"
#include "support/toy_model.h"

static _Atomic long n_calls, n_live, n_mapped, fail_at; /* fail_at 0: never */

#if !SANITIZED && defined(__GLIBC__)
#define INTERPOSED 1

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *old, size_t n);
void *__libc_memalign(size_t alignment, size_t n);
void __libc_free(void *p);

static bool fails(void)
{
    const long call = atomic_fetch_add(&n_calls, 1) + 1;
    if (call != atomic_load(&fail_at)) return false;
    errno = ENOMEM;
    return true;
}

static void *counted(void *p)
{
    if (p) atomic_fetch_add(&n_live, 1);
    return p;
}

void *malloc(size_t n)
{
    return fails() ? NULL : counted(__libc_malloc(n));
}

void *calloc(size_t n, size_t size)
{
    return fails() ? NULL : counted(__libc_calloc(n, size));
}

void *aligned_alloc(size_t alignment, size_t n)
{
    return fails() ? NULL : counted(__libc_memalign(alignment, n));
}

void *realloc(void *old, size_t n)
{
    if (fails()) return NULL;
    void *p = __libc_realloc(old, n);
    return old ? p : counted(p);
}

void free(void *p)
{
    if (p) atomic_fetch_sub(&n_live, 1);
    __libc_free(p);
}

/* Large memory and files: mappings are counted by their bytes, as parts of one are given back. */
void *mmap(void *address, size_t n, int protection, int flags, int fd, off_t offset)
{
    if (fails()) return MAP_FAILED;
    const long at = syscall(SYS_mmap, address, n, protection, flags, fd, offset);
    if (at == -1) return MAP_FAILED;
    atomic_fetch_add(&n_mapped, (long)n);
    return (void *)at;
}

int munmap(void *address, size_t n)
{
    atomic_fetch_sub(&n_mapped, (long)n);
    return (int)syscall(SYS_munmap, address, n);
}
#endif

struct session {
    const char *path, *file;
    const int32_t *ids; /* 150 */
    bool split;         /* in two stages */
    float *logits;      /* [4][vocab_size] */
    int n_errors;       /* calls that failed, and worked when repeated */
};

/* A call that may fail once, and says why. */
#define CALL(s, expr)                                                                            \
    do {                                                                                         \
        struct qrn_error err = {.text = ""};                                                     \
        enum qrn_status status_ = (expr);                                                        \
        if (status_ != QRN_OK) {                                                                 \
            (s)->n_errors++;                                                                     \
            if (!err.text[0]) fail_msg("%s failed without a word", #expr);                       \
            if (status_ != QRN_ERR_MEMORY && status_ != QRN_ERR_IO && status_ != QRN_ERR_DEVICE) \
                fail_msg("%s: %s: %s", #expr, qrn_status_name(status_), err.text);               \
            status_ = (expr);                                                                    \
            if (status_ != QRN_OK) fail_msg("repeated: %s: %s", #expr, err.text);                \
        }                                                                                        \
    } while (0)

static void append(struct session *s, struct qrn_model *model, struct qrn_seq *seq,
                   const int32_t *ids, int64_t n, float *logits)
{
    struct qrn_append a = {
        .seq = seq, .tokens = ids, .n_tokens = n, .want = QRN_LOGITS_LAST, .logits = logits};
    CALL(s, qrn_model_append(model, &a, 1, NULL, NULL, &err));
}

static void run_session(struct session *s)
{
    struct qrn_device *dev = NULL;
    struct qrn_model *model = NULL;
    struct qrn_seq *seq = NULL, *fork = NULL, *loaded = NULL;
    struct qrn_snapshot *snapshot = NULL;
    const struct qrn_device_options device_options = {.n_threads = 1};
    const struct qrn_seq_options seq_options = {.max_rollback = 8};
    CALL(s, qrn_device_open(&device_options, &dev, &err));
    const struct qrn_model_options options = {
        .path = s->path, .device = dev, .host_device = s->split ? dev : NULL, .n_device_layers = 1};
    CALL(s, qrn_model_open(&options, &model, &err));
    const int64_t v = qrn_model_info(model)->vocab_size;
    CALL(s, qrn_seq_create(model, &seq_options, &seq, &err));
    append(s, model, seq, s->ids, 70, s->logits);
    CALL(s, qrn_seq_fork(seq, &fork, &err));
    append(s, model, fork, s->ids + 70, 1, s->logits + v);
    CALL(s, qrn_snapshot_take(seq, &snapshot, &err));
    append(s, model, seq, s->ids + 70, 60, s->logits + 2 * v);
    CALL(s, qrn_seq_save(seq, s->file, &err));
    CALL(s, qrn_seq_load(model, s->file, 0, &loaded, &err));
    append(s, model, loaded, s->ids + 130, 1, s->logits + 3 * v);
    qrn_seq_destroy(loaded);
    qrn_snapshot_free(snapshot);
    qrn_seq_destroy(fork);
    qrn_seq_destroy(seq);
    qrn_model_close(model);
    qrn_device_close(dev);
}

struct faults {
    struct session s;
    float *want;
    size_t n_bytes;
    long n_allocations;
    int n_unnoticed; /* failures that no call needed to report */
};

static void faults_begin(struct faults *f, const char *path, bool split, int64_t vocab_size)
{
    static int32_t ids[150];
    static char file[512];
    struct rng r = {5};
    for (int i = 0; i < 150; i++) ids[i] = (int32_t)rng_below(&r, vocab_size);
    (void)snprintf(file, sizeof file, "%s", temp_path("faults.qrnseq"));
    f->n_bytes = (size_t)(4 * vocab_size) * sizeof(float);
    f->want = malloc(f->n_bytes);
    f->s =
        (struct session){.path = path, .file = file, .ids = ids, .split = split, .logits = f->want};
    run_session(&f->s); /* libraries make what they keep */
    atomic_store(&n_calls, 0);
    run_session(&f->s);
    f->n_allocations = atomic_load(&n_calls);
    f->s.logits = malloc(f->n_bytes);
}

static void faults_try(struct faults *f, long n)
{
    memset(f->s.logits, 0, f->n_bytes);
    f->s.n_errors = 0;
    const long live = atomic_load(&n_live), mapped = atomic_load(&n_mapped);
    atomic_store(&n_calls, 0);
    atomic_store(&fail_at, n);
    run_session(&f->s);
    atomic_store(&fail_at, 0);
    if (f->s.n_errors == 0) f->n_unnoticed++;
    if (f->s.n_errors > 1) fail_msg("allocation %ld: %d calls failed", n, f->s.n_errors);
    if (atomic_load(&n_live) != live)
        fail_msg("allocation %ld: %ld blocks leaked", n, atomic_load(&n_live) - live);
    if (atomic_load(&n_mapped) != mapped)
        fail_msg("allocation %ld: %ld bytes stay mapped", n, atomic_load(&n_mapped) - mapped);
    if (memcmp(f->s.logits, f->want, f->n_bytes) != 0) fail_msg("allocation %ld: other logits", n);
}

static void faults_end(struct faults *f, long n_tried)
{
    print_message("%s: %ld allocations, %ld failed in turn, %d of them unnoticed\n", f->s.path,
                  f->n_allocations, n_tried, f->n_unnoticed);
    if (f->n_unnoticed * 20 > n_tried) fail_msg("%d failures went unnoticed", f->n_unnoticed);
    free(f->s.logits);
    free(f->want);
}

static void test_toys(void **state)
{
    (void)state;
#if !defined(INTERPOSED)
    skip();
#endif
    for (enum toy_kind kind = TOY_DENSE; kind < TOY_KINDS; kind++) {
        struct faults f = {.n_unnoticed = 0};
        char dir[512];
        (void)snprintf(dir, sizeof dir, "%s", temp_path("toy"));
        (void)mkdir(dir, 0700);
        toy_model_write(dir, kind);
        faults_begin(&f, dir, kind == TOY_MOE, 96);
        for (long n = 1; n <= f.n_allocations; n++) faults_try(&f, n);
        faults_end(&f, f.n_allocations);
    }
}

/* The first 2000 allocations, which may be all, and 2000 random ones of what is left. */
static void test_fairy(void **state)
{
    (void)state;
#if !defined(INTERPOSED)
    skip();
#endif
    enum { MANY = 2000 };
    struct faults f = {.n_unnoticed = 0};
    struct rng r = {11};
    faults_begin(&f, "models/fairy", false, 4096);
    long n = 0;
    while (n < MANY && n < f.n_allocations) faults_try(&f, ++n);
    for (int i = 0; i < MANY && f.n_allocations > MANY; i++, n++)
        faults_try(&f, MANY + 1 + (long)rng_below(&r, f.n_allocations - MANY));
    faults_end(&f, n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_toys), cmocka_unit_test(test_fairy)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
