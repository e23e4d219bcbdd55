/* SPDX-License-Identifier: MIT
 * What device code begins and waits for later: copies of 16 bytes, barriers that count, bulk copies.  A copy
 * is done as late as it may be; its place is poisoned until then. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emulator/block.h"

/* --- copies of a thread --- */

static struct copy *new_copy(void)
{
    struct thread *t = emulator_block->self;
    if (t->n_copies == MAX_COPIES) abort();
    return &t->copies[t->n_copies++];
}

/* Both ends of a copy are aligned to its size, those of more than 16 bytes to 16. */
static void check_alignment(const void *to, const void *from, unsigned alignment)
{
    if (((uintptr_t)to | (uintptr_t)from) % alignment == 0 || *emulator_message) return;
    (void)snprintf(emulator_message, sizeof emulator_message,
                   "a copy in the background from %p to %p: misaligned", from, to);
}

void emulated_copy_begin(void *to, const void *from, int n_bytes, int n_all)
{
    check_alignment(to, from, (unsigned)n_all);
    memset(to, 0xff, (size_t)n_all);
    *new_copy() = (struct copy){to, from, n_bytes, n_all, emulator_block->self->group, NULL};
}

void emulated_copies_commit(void)
{
    emulator_block->self->group++;
}

/* Of 8 bytes in shared memory. */
struct barrier {
    int32_t n_bytes; /* expected, still to come */
    uint16_t n_pending;
    uint16_t count : 15, phase : 1;
};
_Static_assert(sizeof(struct barrier) == 8, "");

static void settle(struct barrier *x)
{
    if (x->n_pending || x->n_bytes) return;
    x->phase ^= 1;
    x->n_pending = x->count;
}

static struct barrier *barrier_of(uint64_t *state)
{
    return (struct barrier *)state;
}

static void arrive(uint64_t *state, int n_bytes)
{
    struct barrier *x = barrier_of(state);
    if (x->n_pending == 0) abort(); /* more arrivals than were said */
    x->n_pending--;
    x->n_bytes += n_bytes;
    settle(x);
}

static void do_copy(const struct copy *c)
{
    if (c->barrier) {
        arrive(c->barrier, 0);
        return;
    }
    memset(c->to, 0, (size_t)c->n_all);
    memcpy(c->to, c->from, (size_t)c->n_bytes);
}

/* Does the first n; the others stay. */
static void do_copies(struct thread *t, int n)
{
    for (int i = 0; i < n; i++) do_copy(&t->copies[i]);
    t->n_copies -= n;
    memmove(t->copies, t->copies + n, (size_t)t->n_copies * sizeof *t->copies);
}

void emulated_copies_wait(int n_groups_left)
{
    struct thread *t = emulator_block->self;
    int n = 0;
    while (n < t->n_copies && t->group - t->copies[n].group > (unsigned)n_groups_left) n++;
    do_copies(t, n);
}

/* --- bulk copies --- */

static void begin_bulk(struct block *b, const struct bulk *x)
{
    if (b->n_bulks == MAX_BULKS) abort();
    memset(x->to, 0xff, (size_t)x->n_bytes);
    b->bulks[b->n_bulks++] = *x;
}

void emulated_bulk_copy(void *to, const void *from, int n_bytes, uint64_t *barrier)
{
    check_alignment(to, from, 16);
    if ((uintptr_t)to % 16 || (uintptr_t)from % 16 || n_bytes % 16) abort();
    begin_bulk(emulator_block,
               &(struct bulk){.to = to, .from = from, .n_bytes = n_bytes, .barrier = barrier});
}

void emulated_tensor_copy_4d(void *to, const void *map, const int *at, uint64_t *barrier)
{
    struct bulk bulk = {.to = to, .at = {at[0], at[1], at[2], at[3]}, .barrier = barrier};
    memcpy(&bulk.map, map, sizeof bulk.map);
    if (emulated_shared_address(to) % 1024) abort();
    const int *box = bulk.map.box;
    bulk.n_bytes = bulk.map.n_bytes * box[0] * box[1] * box[2] * box[3];
    begin_bulk(emulator_block, &bulk);
}

void emulated_tensor_copy(void *to, const void *map, int x, int y, int z, uint64_t *barrier)
{
    emulated_tensor_copy_4d(to, map, (const int[]){x, y, z, 0}, barrier);
}

void emulated_send_to_block(void *shared, uint32_t word, uint64_t *barrier, int rank)
{
    struct block *to = emulator_peer(rank);
    if (!to) return;
    begin_bulk(to,
               &(struct bulk){
                   .to = to->shared + emulated_shared_address(shared),
                   .is_sent = true,
                   .sent = word,
                   .n_bytes = sizeof word,
                   .barrier = (uint64_t *)(void *)(to->shared + emulated_shared_address(barrier))});
}

bool emulator_async_end(const struct block *b)
{
    for (int i = 0; i < b->n_bulks; i++)
        if (b->bulks[i].is_sent)
            (void)snprintf(emulator_message, sizeof emulator_message,
                           "block (%u, %u, %u) has ended and not waited for what others sent",
                           b->index.x, b->index.y, b->index.z);
    return !*emulator_message;
}

/* Lines of 128 bytes or less, each of them at its place in atoms; elements outside are 0. */
static void copy_box(const struct bulk *x)
{
    const struct emulated_map *m = &x->map;
    const int line = m->n_bytes * m->box[0];
    for (int r = 0; r < m->box[1] * m->box[2] * m->box[3]; r++)
        for (int i = 0; i < line; i++) {
            const int64_t n = x->at[0] + i / m->n_bytes, row = x->at[1] + r % m->box[1],
                          matrix = x->at[2] + r / m->box[1] % m->box[2],
                          group = x->at[3] + r / m->box[1] / m->box[2];
            const bool inside = n >= 0 && n < (int64_t)m->dims[0] && row >= 0 &&
                                row < (int64_t)m->dims[1] && matrix >= 0 &&
                                matrix < (int64_t)m->dims[2] && group >= 0 &&
                                group < (int64_t)m->dims[3];
            const char *from = (const char *)m->data + n * m->n_bytes + i % m->n_bytes +
                               row * (int64_t)m->strides[0] + matrix * (int64_t)m->strides[1] +
                               group * (int64_t)m->strides[2];
            x->to[r * line + (i ^ (r & 7) << 4)] = inside ? *from : '\0';
        }
}

static void do_bulks(uint64_t *barrier)
{
    struct block *b = emulator_block;
    int n = 0;
    for (int i = 0; i < b->n_bulks; i++) {
        const struct bulk *x = &b->bulks[i];
        if (x->barrier != barrier) {
            b->bulks[n++] = *x;
            continue;
        }
        if (x->is_sent)
            memcpy(x->to, &x->sent, sizeof x->sent);
        else if (x->from)
            memcpy(x->to, x->from, (size_t)x->n_bytes);
        else
            copy_box(x);
        barrier_of(barrier)->n_bytes -= x->n_bytes;
    }
    b->n_bulks = n;
    settle(barrier_of(barrier));
}

/* --- barriers --- */

void emulator_async_begin(struct block *b)
{
    b->n_bulks = 0;
    b->n_registers = 0;
}

/* A launch gives each thread an equal part of a multiprocessor's, in eights; who wants more waits for
 * others to give theirs back, for good if there are not so many. */
void emulated_registers(int n)
{
    struct block *b = emulator_block;
    const unsigned all = 65536 / b->n_threads / 8 * 8 * b->n_threads;
    b->n_registers += (unsigned)n;
    if (b->n_registers > all && !*emulator_message)
        (void)snprintf(emulator_message, sizeof emulator_message,
                       "threads want %u registers and more, the block has %u", b->n_registers, all);
}

void emulated_barrier_init(uint64_t *state, int n_arrivals)
{
    *barrier_of(state) =
        (struct barrier){0, (uint16_t)n_arrivals, (uint16_t)n_arrivals & 0x7fff, 0};
}

void emulated_barrier_arrive(uint64_t *state, int n_bytes)
{
    arrive(state, n_bytes);
}

void emulated_barrier_arrive_after_copies(uint64_t *state)
{
    *new_copy() = (struct copy){.group = emulator_block->self->group, .barrier = state};
}

static void do_copies_before(uint64_t *state)
{
    struct block *b = emulator_block;
    for (unsigned i = 0; i < b->n_threads; i++) {
        struct thread *t = &b->threads[i];
        int n = 0;
        for (int k = 0; k < t->n_copies; k++)
            if (t->copies[k].barrier == state) n = k + 1;
        do_copies(t, n);
    }
}

bool emulator_phase_ended(uint64_t *state, int parity)
{
    if (barrier_of(state)->phase != parity) return true;
    do_copies_before(state);
    if (barrier_of(state)->phase != parity) return true;
    do_bulks(state);
    return barrier_of(state)->phase != parity;
}

void emulated_barrier_wait(uint64_t *state, int parity)
{
    struct thread *t = emulator_block->self;
    if (!emulator_is_slow(emulator_block, t) && emulator_phase_ended(state, parity)) return;
    t->barrier = state;
    t->parity = parity;
    emulator_wait(AT_PHASE);
}

/* --- barriers of some threads --- */

void emulated_sync_some(int barrier, int n_threads, bool waits)
{
    struct block *b = emulator_block;
    if (barrier < 1 || barrier > 15 || n_threads % WARP) abort();
    if (++b->n_arrived[barrier] == n_threads) {
        b->n_arrived[barrier] = 0;
        for (unsigned i = 0; i < b->n_threads; i++)
            if (b->threads[i].state == AT_SOME && b->threads[i].some == barrier)
                b->threads[i].state = RUNS;
    } else if (waits) {
        b->self->some = barrier;
        emulator_wait(AT_SOME);
    }
}

/* --- addresses of shared memory --- */

unsigned emulated_shared_address(const void *p)
{
    return (unsigned)((const char *)p - emulator_block->shared);
}

void emulated_want_global(const void *p)
{
    const struct block *b = emulator_block;
    const uintptr_t begin = (uintptr_t)b->shared, at = (uintptr_t)p;
    if (at >= begin && at < begin + SHARED_BEGINS + b->shared_bytes)
        (void)snprintf(emulator_message, sizeof emulator_message,
                       "block (%u, %u, %u) takes shared memory for global", b->index.x, b->index.y,
                       b->index.z);
}

void *emulated_shared_pointer(unsigned address)
{
    return emulator_block->shared + address;
}

unsigned emulated_thread_number(void)
{
    return (unsigned)(emulator_block->self - emulator_block->threads);
}

uint64_t emulated_block_number(void)
{
    return emulator_block->number;
}

size_t emulated_block_place(void)
{
    return emulator_block->place;
}
