/* SPDX-License-Identifier: MIT
 * An allocator that counts, can fail at the n-th call and has a limit.  Thread-safe. */
#include "support/counting_allocator.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* In front of every block, which ends where malloc's ends: sanitizers see a byte too far. */
struct header {
    void *memory;
    size_t n_bytes;
};

static bool admit(struct counting_allocator *c, size_t n_bytes)
{
    c->n_calls++;
    const size_t left = c->limit > c->live_bytes ? c->limit - c->live_bytes : 0;
    const bool over = c->limit && n_bytes > left;
    const bool chosen =
        c->fail_at && (c->n_calls == c->fail_at || (c->fail_after && c->n_calls > c->fail_at));
    c->n_over_limit += over;
    c->n_failed += over || chosen;
    if (over || chosen) return false;
    c->live_bytes += n_bytes;
    c->live_blocks++;
    if (c->live_bytes > c->peak_bytes) c->peak_bytes = c->live_bytes;
    return true;
}

static void withdraw(struct counting_allocator *c, size_t n_bytes)
{
    pthread_mutex_lock(&c->mutex);
    c->live_bytes -= n_bytes;
    c->live_blocks--;
    pthread_mutex_unlock(&c->mutex);
}

static void *count_alloc(void *user, size_t n_bytes, size_t alignment)
{
    struct counting_allocator *c = user;
    pthread_mutex_lock(&c->mutex);
    const bool ok = admit(c, n_bytes);
    pthread_mutex_unlock(&c->mutex);
    if (!ok) return NULL;
    if (alignment < sizeof(struct header)) alignment = sizeof(struct header);
    void *memory = NULL;
    if (n_bytes > SIZE_MAX - alignment ||
        posix_memalign(&memory, alignment, alignment + n_bytes) != 0) {
        withdraw(c, n_bytes);
        return NULL;
    }
    uint8_t *block = (uint8_t *)memory + alignment;
    const struct header h = {memory, n_bytes};
    memcpy(block - sizeof h, &h, sizeof h);
    return block;
}

static void count_free(void *user, void *block, size_t n_bytes)
{
    struct counting_allocator *c = user;
    if (!block) return;
    struct header h;
    memcpy(&h, (uint8_t *)block - sizeof h, sizeof h);
    withdraw(c, h.n_bytes);
    if (n_bytes != h.n_bytes) {
        pthread_mutex_lock(&c->mutex);
        c->n_bad_frees++;
        pthread_mutex_unlock(&c->mutex);
    }
    free(h.memory);
}

void counting_allocator_init(struct counting_allocator *c)
{
    *c = (struct counting_allocator){0};
    pthread_mutex_init(&c->mutex, NULL);
}

void counting_allocator_reset(struct counting_allocator *c)
{
    pthread_mutex_lock(&c->mutex);
    c->peak_bytes = c->live_bytes;
    c->n_calls = c->fail_at = c->limit = c->n_failed = c->n_over_limit = c->n_bad_frees = 0;
    c->fail_after = false;
    pthread_mutex_unlock(&c->mutex);
}

struct qrn_host counting_host(struct counting_allocator *c)
{
    return (struct qrn_host){.allocator = {.alloc = count_alloc, .free = count_free, .user = c}};
}

static struct counting_allocator *of_jansson;

static void *json_alloc(size_t n_bytes)
{
    return count_alloc(of_jansson, n_bytes, 16);
}

static void json_release(void *block)
{
    if (!block) return;
    struct header h;
    memcpy(&h, (uint8_t *)block - sizeof h, sizeof h);
    count_free(of_jansson, block, h.n_bytes);
}

void counting_allocator_take_jansson(struct counting_allocator *c)
{
    of_jansson = c;
    if (c)
        json_set_alloc_funcs(json_alloc, json_release);
    else
        json_set_alloc_funcs(malloc, free);
}
