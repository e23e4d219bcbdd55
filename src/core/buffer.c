/* SPDX-License-Identifier: MIT
 * Buffers: zeroed device memory with a count of references; slices; pools that keep what is freed. */
#include <quern/device.h>

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include "base/error.h"
#include "base/memory.h"
#include "core/device_impl.h"
#include "core/pool.h"

struct qrn_buffer {
    _Atomic int n_references;
    struct qrn_device *dev;
    struct qrn_buffer *parent; /* of a slice: kept alive */
    struct qrn_pool *pool;     /* where its memory goes back to, or NULL */
    char *data;
    size_t n_bytes, n_reserved; /* what the user sees; what was allocated */
    struct qrn_buffer *next;    /* in a pool's list */
};

struct qrn_pool {
    struct qrn_device *dev;
    pthread_mutex_t lock;
    struct qrn_buffer *kept; /* not in use */
    struct qrn_pool_stats stats;
    size_t n_in_use;
    bool destroyed;
};

static enum qrn_status buffer_new(struct qrn_device *dev, size_t n_bytes, size_t n_reserved,
                                  struct qrn_buffer **out, struct qrn_error *err)
{
    struct qrn_buffer *b = qrn_alloc_zeroed(&dev->host.allocator, sizeof *b);
    if (!b) return qrn_fail_memory(err, sizeof *b, "a buffer");
    b->data = dev->backend->alloc(dev, n_reserved);
    if (!b->data) {
        qrn_free(&dev->host.allocator, b, sizeof *b);
        if (dev->backend->copies) QRN_TRY(dev->backend->copies->state(dev, err));
        return qrn_fail_memory(err, n_reserved, "a buffer");
    }
    atomic_init(&b->n_references, 1);
    b->dev = dev;
    b->n_bytes = n_bytes;
    b->n_reserved = n_reserved;
    *out = b;
    return QRN_OK;
}

static void buffer_free(struct qrn_buffer *b)
{
    struct qrn_device *dev = b->dev;
    if (!b->parent) dev->backend->free(dev, b->data, b->n_reserved);
    qrn_free(&dev->host.allocator, b, sizeof *b);
}

enum qrn_status qrn_buffer_create(struct qrn_device *dev, size_t n_bytes, struct qrn_buffer **out,
                                  struct qrn_error *err)
{
    if (n_bytes == 0) return qrn_fail(err, QRN_ERR_ARGUMENT, "a buffer of 0 bytes was asked for");
    return buffer_new(dev, n_bytes, n_bytes, out, err);
}

enum qrn_status qrn_buffer_slice(struct qrn_buffer *parent, size_t offset, size_t n_bytes,
                                 struct qrn_buffer **out, struct qrn_error *err)
{
    if (n_bytes == 0 || offset > parent->n_bytes || n_bytes > parent->n_bytes - offset)
        return qrn_fail(err, QRN_ERR_ARGUMENT,
                        "a slice of %zu bytes at %zu does not lie in a buffer of %zu", n_bytes,
                        offset, parent->n_bytes);
    struct qrn_buffer *b = qrn_alloc_zeroed(&parent->dev->host.allocator, sizeof *b);
    if (!b) return qrn_fail_memory(err, sizeof *b, "a buffer");
    atomic_init(&b->n_references, 1);
    b->dev = parent->dev;
    b->parent = parent;
    b->data = parent->data + offset;
    b->n_bytes = n_bytes;
    qrn_buffer_retain(parent);
    *out = b;
    return QRN_OK;
}

void qrn_buffer_retain(struct qrn_buffer *b)
{
    atomic_fetch_add_explicit(&b->n_references, 1, memory_order_relaxed);
}

bool qrn_buffer_is_shared(const struct qrn_buffer *b)
{
    return atomic_load_explicit(&b->n_references, memory_order_acquire) > 1;
}

static void pool_take_back(struct qrn_pool *pool, struct qrn_buffer *b);

void qrn_buffer_release(struct qrn_buffer *b)
{
    if (!b || atomic_fetch_sub_explicit(&b->n_references, 1, memory_order_acq_rel) != 1) return;
    struct qrn_buffer *parent = b->parent;
    if (b->pool)
        pool_take_back(b->pool, b);
    else
        buffer_free(b);
    qrn_buffer_release(parent);
}

void *qrn_buffer_data(const struct qrn_buffer *b)
{
    return b->data;
}

size_t qrn_buffer_size(const struct qrn_buffer *b)
{
    return b->n_bytes;
}

static enum qrn_status check_range(const struct qrn_buffer *b, size_t offset, size_t n_bytes,
                                   const char *what, struct qrn_error *err)
{
    if (offset <= b->n_bytes && n_bytes <= b->n_bytes - offset) return QRN_OK;
    return qrn_fail(err, QRN_ERR_ARGUMENT, "%s: %zu bytes at %zu do not lie in a buffer of %zu",
                    what, n_bytes, offset, b->n_bytes);
}

enum qrn_status qrn_buffer_write(struct qrn_buffer *b, size_t offset, const void *data,
                                 size_t n_bytes, struct qrn_error *err)
{
    struct qrn_device *dev = b->dev;
    enum qrn_status status = check_range(b, offset, n_bytes, "writing a buffer", err);
    if (status != QRN_OK || n_bytes == 0) return status;
    pthread_mutex_lock(&dev->lock);
    if (qrn_device_host_reads(dev))
        memcpy(b->data + offset, data, n_bytes);
    else
        status = dev->backend->copies->write(dev, b->data + offset, data, n_bytes, err);
    pthread_mutex_unlock(&dev->lock);
    return status;
}

enum qrn_status qrn_buffer_read(const struct qrn_buffer *b, size_t offset, void *data,
                                size_t n_bytes, struct qrn_error *err)
{
    struct qrn_device *dev = b->dev;
    enum qrn_status status = check_range(b, offset, n_bytes, "reading a buffer", err);
    if (status != QRN_OK || n_bytes == 0) return status;
    pthread_mutex_lock(&dev->lock);
    if (qrn_device_host_reads(dev))
        memcpy(data, b->data + offset, n_bytes);
    else
        status = dev->backend->copies->read(dev, data, b->data + offset, n_bytes, err);
    pthread_mutex_unlock(&dev->lock);
    return status;
}

enum qrn_status qrn_buffer_copy(struct qrn_buffer *dst, size_t dst_offset,
                                const struct qrn_buffer *src, size_t src_offset, size_t n_bytes,
                                struct qrn_error *err)
{
    struct qrn_device *dev = dst->dev;
    QRN_TRY(check_range(dst, dst_offset, n_bytes, "copying to a buffer", err));
    QRN_TRY(check_range(src, src_offset, n_bytes, "copying from a buffer", err));
    if (src->dev != dev)
        return qrn_fail(err, QRN_ERR_ARGUMENT,
                        "a copy from a buffer of device %s to one of another, %s", src->dev->bits,
                        dev->bits);
    char *to = dst->data + dst_offset;
    const char *from = src->data + src_offset;
    if (n_bytes == 0) return QRN_OK;
    if ((uintptr_t)to < (uintptr_t)from + n_bytes && (uintptr_t)from < (uintptr_t)to + n_bytes)
        return qrn_fail(err, QRN_ERR_ARGUMENT, "a copy of %zu bytes to where it overlaps itself",
                        n_bytes);
    enum qrn_status status = QRN_OK;
    pthread_mutex_lock(&dev->lock);
    if (qrn_device_host_reads(dev))
        memcpy(to, from, n_bytes);
    else
        status = dev->backend->copies->within(dev, to, from, n_bytes, err);
    pthread_mutex_unlock(&dev->lock);
    return status;
}

enum qrn_status qrn_buffer_tensor(const struct qrn_buffer *b, size_t offset, enum qrn_dtype dtype,
                                  int n_dims, const int64_t *shape, struct qrn_tensor *out,
                                  struct qrn_error *err)
{
    const struct qrn_dtype_info *type = qrn_dtype_info(dtype);
    if (!type) return qrn_fail(err, QRN_ERR_ARGUMENT, "dtype %d is no type", (int)dtype);
    if (n_dims < 1 || n_dims > QRN_MAX_DIMS)
        return qrn_fail(err, QRN_ERR_ARGUMENT, "n_dims is %d, wants 1 to %d", n_dims, QRN_MAX_DIMS);
    if (offset > b->n_bytes)
        return qrn_fail(err, QRN_ERR_ARGUMENT, "offset %zu lies outside a buffer of %zu bytes",
                        offset, b->n_bytes);
    struct qrn_tensor t = {
        .dtype = dtype, .n_dims = n_dims, .data = b->data + offset, .n_bytes = b->n_bytes - offset};
    int64_t stride = 1;
    for (int i = n_dims - 1; i >= 0; i--) {
        if (shape[i] < 0)
            return qrn_fail(err, QRN_ERR_SHAPE, "shape[%d] is %" PRId64 ", wants 0 or more", i,
                            shape[i]);
        t.shape[i] = shape[i];
        t.stride[i] = stride;
        if (__builtin_mul_overflow(stride, shape[i] ? shape[i] : 1, &stride))
            return qrn_fail(err, QRN_ERR_SHAPE, "the number of elements does not fit");
    }
    size_t extent;
    if (t.shape[n_dims - 1] % type->block_elements)
        return qrn_fail(err, QRN_ERR_SHAPE, "rows of %" PRId64 " are no whole blocks of %d (%s)",
                        t.shape[n_dims - 1], type->block_elements, type->name);
    if (!qrn_tensor_extent(&t, &extent) || extent > t.n_bytes)
        return qrn_fail(err, QRN_ERR_SHAPE, "the tensor does not fit into the %zu bytes after %zu",
                        t.n_bytes, offset);
    *out = t;
    return QRN_OK;
}

/* --- pools --- */

enum qrn_status qrn_pool_create(struct qrn_device *dev, size_t budget_bytes, struct qrn_pool **out,
                                struct qrn_error *err)
{
    struct qrn_pool *pool = qrn_alloc_zeroed(&dev->host.allocator, sizeof *pool);
    if (!pool) return qrn_fail_memory(err, sizeof *pool, "a pool");
    if (pthread_mutex_init(&pool->lock, NULL) != 0) {
        qrn_free(&dev->host.allocator, pool, sizeof *pool);
        return qrn_fail(err, QRN_ERR_DEVICE, "cannot make a mutex");
    }
    pool->dev = dev;
    pool->stats.budget_bytes = budget_bytes;
    *out = pool;
    return QRN_OK;
}

static void pool_free(struct qrn_pool *pool)
{
    pthread_mutex_destroy(&pool->lock);
    qrn_free(&pool->dev->host.allocator, pool, sizeof *pool);
}

static void drop_kept(struct qrn_pool *pool)
{
    while (pool->kept) {
        struct qrn_buffer *b = pool->kept;
        pool->kept = b->next;
        buffer_free(b);
    }
    pool->stats.free_bytes = 0;
}

/* Eighths of a power of two: at most 12.5 % is lost, and sizes repeat. */
static size_t size_class(size_t n_bytes)
{
    size_t step = QRN_ALIGNMENT;
    while (step < n_bytes / 8) step *= 2;
    return n_bytes > SIZE_MAX - step ? n_bytes : (n_bytes + step - 1) / step * step;
}

static struct qrn_buffer *take_kept(struct qrn_pool *pool, const struct qrn_device *dev,
                                    size_t n_reserved)
{
    for (struct qrn_buffer **p = &pool->kept; *p; p = &(*p)->next) {
        struct qrn_buffer *b = *p;
        if (b->dev != dev || b->n_reserved != n_reserved) continue;
        *p = b->next;
        pool->stats.free_bytes -= n_reserved;
        return b;
    }
    return NULL;
}

enum qrn_status qrn_pool_acquire(struct qrn_pool *pool, size_t n_bytes, struct qrn_buffer **out,
                                 struct qrn_error *err)
{
    return qrn_pool_acquire_on(pool, pool->dev, n_bytes, QRN_POOL_ZEROS, out, err);
}

enum qrn_status qrn_pool_acquire_on(struct qrn_pool *pool, struct qrn_device *dev, size_t n_bytes,
                                    enum qrn_pool_contents contents, struct qrn_buffer **out,
                                    struct qrn_error *err)
{
    if (n_bytes == 0) return qrn_fail(err, QRN_ERR_ARGUMENT, "a buffer of 0 bytes was asked for");
    const size_t n_reserved = size_class(n_bytes);
    struct qrn_pool_stats *s = &pool->stats;
    enum qrn_status status = QRN_OK;
    pthread_mutex_lock(&pool->lock);
    struct qrn_buffer *b = take_kept(pool, dev, n_reserved);
    if (!b) {
        if (s->budget_bytes && (n_reserved > s->budget_bytes ||
                                s->in_use_bytes + s->free_bytes > s->budget_bytes - n_reserved))
            drop_kept(pool);
        if (s->budget_bytes &&
            (n_reserved > s->budget_bytes || s->in_use_bytes > s->budget_bytes - n_reserved))
            status = qrn_fail(err, QRN_ERR_LIMIT,
                              "%zu bytes do not fit: %zu of a budget of %zu are in use", n_reserved,
                              s->in_use_bytes, s->budget_bytes);
        else
            status = buffer_new(dev, n_bytes, n_reserved, &b, err);
    } else {
        if (contents == QRN_POOL_ZEROS) dev->backend->zero(dev, b->data, n_bytes);
        atomic_store(&b->n_references, 1);
    }
    if (status == QRN_OK) {
        b->pool = pool;
        b->next = NULL;
        b->n_bytes = n_bytes;
        s->in_use_bytes += n_reserved;
        pool->n_in_use++;
        if (s->in_use_bytes + s->free_bytes > s->peak_bytes)
            s->peak_bytes = s->in_use_bytes + s->free_bytes;
        *out = b;
    }
    pthread_mutex_unlock(&pool->lock);
    return status;
}

static void pool_take_back(struct qrn_pool *pool, struct qrn_buffer *b)
{
    pthread_mutex_lock(&pool->lock);
    pool->stats.in_use_bytes -= b->n_reserved;
    pool->n_in_use--;
    const bool last = pool->destroyed && pool->n_in_use == 0;
    if (pool->destroyed) {
        buffer_free(b);
    } else {
        b->next = pool->kept;
        pool->kept = b;
        pool->stats.free_bytes += b->n_reserved;
    }
    pthread_mutex_unlock(&pool->lock);
    if (last) pool_free(pool);
}

void qrn_pool_trim(struct qrn_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    drop_kept(pool);
    pthread_mutex_unlock(&pool->lock);
}

struct qrn_pool_stats qrn_pool_stats(struct qrn_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    const struct qrn_pool_stats stats = pool->stats;
    pthread_mutex_unlock(&pool->lock);
    return stats;
}

void qrn_pool_destroy(struct qrn_pool *pool)
{
    if (!pool) return;
    pthread_mutex_lock(&pool->lock);
    drop_kept(pool);
    pool->destroyed = true;
    const bool last = pool->n_in_use == 0;
    pthread_mutex_unlock(&pool->lock);
    if (last) pool_free(pool);
}
