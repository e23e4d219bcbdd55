/* SPDX-License-Identifier: MIT
 * Memory of the host that a device copies from and to. */
#include "core/staging.h"

#include "base/memory.h"
#include "base/pages.h"

enum qrn_status qrn_staging_create(struct qrn_device *dev, size_t n_bytes, struct qrn_staging *out,
                                   struct qrn_error *err)
{
    const size_t page = qrn_page_size();
    struct qrn_staging s = {.dev = dev};
    if (n_bytes > SIZE_MAX - 2 * page) return qrn_fail_memory(err, n_bytes, "staging");
    s.n_bytes = (n_bytes + page - 1) / page * page;
    s.n_memory = s.n_bytes + page;
    s.memory = qrn_alloc_zeroed(&dev->host.allocator, s.n_memory);
    if (!s.memory) return qrn_fail_memory(err, s.n_memory, "staging");
    s.bytes = (char *)s.memory + (page - (uintptr_t)s.memory % page) % page;
    if (!qrn_device_host_reads(dev)) {
        pthread_mutex_lock(&dev->lock);
        s.shared = dev->backend->copies->share(dev, s.bytes, s.n_bytes, NULL) == QRN_OK;
        pthread_mutex_unlock(&dev->lock);
    }
    *out = s;
    return QRN_OK;
}

void qrn_staging_free(struct qrn_staging *s)
{
    if (!s->memory) return;
    if (s->shared) {
        pthread_mutex_lock(&s->dev->lock);
        s->dev->backend->copies->unshare(s->dev, s->bytes);
        pthread_mutex_unlock(&s->dev->lock);
    }
    qrn_free(&s->dev->host.allocator, s->memory, s->n_memory);
    *s = (struct qrn_staging){0};
}
