/* SPDX-License-Identifier: MIT
 * The CPU as a device that is far away. */
#include "support/far_device.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "support/op_test.h"

struct block {
    struct block *next;
    char *map;
    size_t n_map, n_bytes;
};

/* What was queued: a copy to the device, a copy to the host, a note, or steps of a recording. */
struct work {
    struct work *next;
    bool is_fetch, is_note;
    int turn; /* of a note */
    char *to;
    const char *from;
    char *was; /* what from held when it was queued */
    size_t n_bytes;
    const struct qrn_step *steps;
    size_t n_steps, scratch_bytes;
};

static struct {
    struct qrn_backend backend;
    const struct qrn_backend *cpu;
    struct block *blocks;
    struct work *first, **last;
    size_t n_bytes, n_in_use;
    bool shares_nothing;
    struct far_counts counts;
    pthread_mutex_t lock; /* recursive */
} far;

/* Memory is got and given back while another thread works. */
static void enter(void)
{
    assert_int_equal(pthread_mutex_lock(&far.lock), 0);
}

static void leave(void)
{
    assert_int_equal(pthread_mutex_unlock(&far.lock), 0);
}

static void count(long *counter, long n)
{
    enter();
    *counter += n;
    leave();
}

static void let(int protection)
{
    for (const struct block *b = far.blocks; b; b = b->next)
        assert_int_equal(mprotect(b->map, b->n_map, protection), 0);
}

static enum qrn_status run(struct qrn_device *dev, const struct qrn_step *steps, size_t n_steps,
                           size_t scratch_bytes, struct qrn_error *err)
{
    enter();
    let(PROT_READ | PROT_WRITE);
    const enum qrn_status s = far.cpu->execute(dev, steps, n_steps, scratch_bytes, err);
    let(PROT_NONE);
    leave();
    return s;
}

static void copy(char *to, const void *from, size_t n_bytes)
{
    enter();
    let(PROT_READ | PROT_WRITE);
    memcpy(to, from, n_bytes);
    let(PROT_NONE);
    leave();
}

static void add(struct work w)
{
    struct work *copy_of = malloc(sizeof w);
    assert_non_null(copy_of);
    *copy_of = w;
    copy_of->next = NULL;
    enter();
    *far.last = copy_of;
    far.last = &copy_of->next;
    leave();
}

/* What comes before `end`, or all (NULL). */
static enum qrn_status do_until(struct qrn_device *dev, const struct work *end,
                                struct qrn_error *err)
{
    enum qrn_status first = QRN_OK;
    enter();
    while (far.first != end) {
        struct work *w = far.first;
        far.first = w->next;
        if (!far.first) far.last = &far.first;
        if (w->steps) {
            const enum qrn_status s = run(dev, w->steps, w->n_steps, w->scratch_bytes, err);
            if (first == QRN_OK) first = s;
        } else if (w->is_fetch) {
            copy(w->to, w->from, w->n_bytes);
        } else if (!w->is_note) {
            if (memcmp(w->was, w->from, w->n_bytes) != 0)
                fail_msg("%s", "what is uploaded has changed before the device was waited for");
            copy(w->to, w->from, w->n_bytes);
            free(w->was);
        }
        free(w);
    }
    leave();
    return first;
}

static enum qrn_status do_pending(struct qrn_device *dev, struct qrn_error *err)
{
    return do_until(dev, NULL, err);
}

/* --- the backend --- */

static enum qrn_status execute(struct qrn_device *dev, const struct qrn_step *steps, size_t n_steps,
                               size_t scratch_bytes, struct qrn_error *err)
{
    QRN_TRY(do_pending(dev, err));
    return run(dev, steps, n_steps, scratch_bytes, err);
}

static void *far_alloc(struct qrn_device *dev, size_t n_bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    (void)dev;
    struct block *b = calloc(1, sizeof *b);
    assert_non_null(b);
    enter();
    if (n_bytes > far.n_bytes - far.n_in_use) {
        leave();
        free(b);
        return NULL;
    }
    b->n_bytes = n_bytes;
    b->n_map = (n_bytes + page - 1) / page * page;
    b->map = mmap(NULL, b->n_map, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(b->map != MAP_FAILED);
    assert_int_equal(mprotect(b->map, b->n_map, PROT_NONE), 0);
    b->next = far.blocks;
    far.blocks = b;
    far.n_in_use += n_bytes;
    far.counts.allocations++;
    leave();
    return b->map;
}

static void far_free(struct qrn_device *dev, void *memory, size_t n_bytes)
{
    enter();
    assert_int_equal(do_pending(dev, NULL), QRN_OK);
    for (struct block **p = &far.blocks; *p; p = &(*p)->next) {
        struct block *b = *p;
        if (b->map != memory) continue;
        assert_int_equal(b->n_bytes, n_bytes);
        *p = b->next;
        far.n_in_use -= n_bytes;
        far.counts.allocations--;
        (void)munmap(b->map, b->n_map);
        free(b);
        leave();
        return;
    }
    fail_msg("%s", "memory is freed that was not allocated");
}

static void far_zero(struct qrn_device *dev, void *memory, size_t n_bytes)
{
    enter();
    assert_int_equal(do_pending(dev, NULL), QRN_OK);
    let(PROT_READ | PROT_WRITE);
    memset(memory, 0, n_bytes);
    let(PROT_NONE);
    leave();
}

static enum qrn_status upload(struct qrn_device *dev, void *to, const void *from, size_t n_bytes,
                              struct qrn_error *err)
{
    (void)dev;
    (void)err;
    char *was = malloc(n_bytes);
    assert_non_null(was);
    memcpy(was, from, n_bytes);
    add((struct work){.to = to, .from = from, .was = was, .n_bytes = n_bytes});
    count(&far.counts.uploads, 1);
    return QRN_OK;
}

static enum qrn_status wait_for_all(struct qrn_device *dev, struct qrn_error *err)
{
    count(&far.counts.waits, 1);
    return do_pending(dev, err);
}

static enum qrn_status write_bytes(struct qrn_device *dev, void *to, const void *from,
                                   size_t n_bytes, struct qrn_error *err)
{
    count(&far.counts.writes, 1);
    QRN_TRY(do_pending(dev, err));
    copy(to, from, n_bytes);
    return QRN_OK;
}

static enum qrn_status read_bytes(struct qrn_device *dev, void *to, const void *from,
                                  size_t n_bytes, struct qrn_error *err)
{
    count(&far.counts.reads, 1);
    QRN_TRY(do_pending(dev, err));
    copy(to, from, n_bytes);
    return QRN_OK;
}

static enum qrn_status copy_bytes(struct qrn_device *dev, void *to, const void *from,
                                  size_t n_bytes, struct qrn_error *err)
{
    QRN_TRY(do_pending(dev, err));
    copy(to, from, n_bytes);
    return QRN_OK;
}

static enum qrn_status share(struct qrn_device *dev, void *begin, size_t n_bytes,
                             struct qrn_error *err)
{
    (void)dev;
    (void)err;
    assert_true((uintptr_t)begin % (size_t)sysconf(_SC_PAGESIZE) == 0 && n_bytes > 0);
    return far.shares_nothing ? QRN_ERR_DEVICE : QRN_OK;
}

static void stop_sharing(struct qrn_device *dev, void *begin)
{
    (void)begin;
    assert_int_equal(do_pending(dev, NULL), QRN_OK);
}

static enum qrn_status state(struct qrn_device *dev, struct qrn_error *err)
{
    (void)dev;
    (void)err;
    return QRN_OK;
}

static enum qrn_status memory_left(struct qrn_device *dev, size_t *n_free, size_t *n_total,
                                   struct qrn_error *err)
{
    (void)dev;
    (void)err;
    *n_total = far.n_bytes;
    enter();
    *n_free = far.n_bytes - far.n_in_use;
    leave();
    return QRN_OK;
}

static bool is_far(const void *p)
{
    enter();
    const struct block *b = far.blocks;
    while (b && !((const char *)p >= b->map && (const char *)p < b->map + b->n_map)) b = b->next;
    leave();
    return b;
}

static enum qrn_status copy_shared(struct qrn_device *dev, struct qrn_shared_copy c,
                                   struct qrn_error *err)
{
    if (c.n_bytes == 0) return QRN_OK;
    if (is_far(c.to)) return upload(dev, c.to, c.from, c.n_bytes, err);
    memset(c.to, 0xff, c.n_bytes);
    add((struct work){.is_fetch = true, .to = c.to, .from = c.from, .n_bytes = c.n_bytes});
    count(&far.counts.fetches, 1);
    count(&far.counts.fetched_bytes, (long)c.n_bytes);
    return QRN_OK;
}

static enum qrn_status submit(struct qrn_device *dev, const struct qrn_recording *r, size_t begin,
                              size_t end, void **recorded, struct qrn_error *err)
{
    *recorded = &far;
    if (begin == 0) (void)copy_shared(dev, r->first, err);
    add((struct work){
        .steps = r->steps + begin, .n_steps = end - begin, .scratch_bytes = r->scratch_bytes});
    if (end == r->n_steps) (void)copy_shared(dev, r->last, err);
    count(&far.counts.submits, 1);
    return QRN_OK;
}

static void forget(struct qrn_device *dev, void *recorded)
{
    assert_ptr_equal(recorded, &far);
    assert_int_equal(do_pending(dev, NULL), QRN_OK);
}

static enum qrn_status note(struct qrn_device *dev, int turn, struct qrn_error *err)
{
    (void)dev;
    (void)err;
    add((struct work){.is_note = true, .turn = turn});
    return QRN_OK;
}

static enum qrn_status wait_noted(struct qrn_device *dev, int turn, struct qrn_error *err)
{
    enter();
    const struct work *w = far.first;
    while (w && !(w->is_note && w->turn == turn)) w = w->next;
    const enum qrn_status s = w ? do_until(dev, w->next, err) : QRN_OK;
    leave();
    return s;
}

static const struct qrn_copies copies = {
    .upload = upload,
    .wait = wait_for_all,
    .write = write_bytes,
    .read = read_bytes,
    .within = copy_bytes,
    .share = share,
    .unshare = stop_sharing,
    .state = state,
    .memory = memory_left,
};
static const struct qrn_replays replays = {.queue = execute,
                                           .submit = submit,
                                           .forget = forget,
                                           .copy_shared = copy_shared,
                                           .note = note,
                                           .wait_noted = wait_noted};

struct qrn_device *far_device_open(int n_threads, size_t n_bytes)
{
    const struct qrn_device_options o = {.n_threads = n_threads};
    struct qrn_device *dev;
    struct qrn_error err;
    pthread_mutexattr_t recursive;
    assert_int_equal(pthread_mutexattr_init(&recursive), 0);
    assert_int_equal(pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE), 0);
    assert_int_equal(pthread_mutex_init(&far.lock, &recursive), 0);
    (void)pthread_mutexattr_destroy(&recursive);
    if (qrn_device_open(&o, &dev, &err) != QRN_OK) fail_msg("%s", err.text);
    far.cpu = dev->backend;
    far.backend = *far.cpu;
    far.backend.name = "far";
    far.backend.execute = execute;
    far.backend.alloc = far_alloc;
    far.backend.free = far_free;
    far.backend.zero = far_zero;
    far.backend.copies = &copies;
    far.backend.replays = &replays;
    far.blocks = NULL;
    far.first = NULL;
    far.last = &far.first;
    far.n_bytes = n_bytes;
    far.n_in_use = 0;
    far.shares_nothing = false;
    far.counts = (struct far_counts){0};
    dev->backend = &far.backend;
    return dev;
}

void far_device_close(struct qrn_device *dev)
{
    assert_null(far.first);
    assert_int_equal(far.counts.allocations, 0);
    dev->backend = far.cpu;
    qrn_device_close(dev);
    (void)pthread_mutex_destroy(&far.lock);
}

void far_device_share_nothing(void)
{
    far.shares_nothing = true;
}

struct far_counts far_device_counts(void)
{
    return far.counts;
}
