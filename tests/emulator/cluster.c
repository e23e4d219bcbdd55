/* SPDX-License-Identifier: MIT
 * Blocks of a cluster: their barrier, and who may send what to whose shared memory. */
#include <stdarg.h>
#include <stdio.h>

#include "emulator/block.h"

__attribute__((format(printf, 1, 2))) static void complain(const char *format, ...)
{
    char what[128];
    va_list args;
    const struct block *b = emulator_block;
    if (*emulator_message) return;
    va_start(args, format);
    (void)vsnprintf(what, sizeof what, format, args);
    va_end(args);
    (void)snprintf(emulator_message, sizeof emulator_message, "block (%u, %u, %u), thread %td %s",
                   b->index.x, b->index.y, b->index.z, b->self - b->threads, what);
}

void emulated_cluster_arrive(void)
{
    struct block *b = emulator_block;
    struct cluster *c = b->cluster;
    if (!c) {
        complain("arrives at the barrier of a cluster, but the launch has none");
        return;
    }
    if (b->self->n_arrivals++ != b->self->n_waits)
        complain("arrives at its cluster's barrier twice without waiting");
    if (++c->n_arrived < c->n * b->n_threads) return;
    c->n_arrived = 0;
    c->n_phases++;
}

bool emulator_cluster_came(const struct block *b, const struct thread *t)
{
    return b->cluster->n_phases >= t->n_waits;
}

void emulated_cluster_wait(void)
{
    struct block *b = emulator_block;
    struct thread *t = b->self;
    if (t->n_waits++ == t->n_arrivals) {
        complain("waits at its cluster's barrier without having arrived");
        return;
    }
    if (emulator_is_slow(b, t) || !emulator_cluster_came(b, t)) emulator_wait(AT_CLUSTER);
}

static bool has_ended(const struct block *b)
{
    for (unsigned i = 0; i < b->n_threads; i++)
        if (b->threads[i].state != ENDED) return false;
    return true;
}

struct block *emulator_peer(int rank)
{
    const struct block *b = emulator_block;
    const struct cluster *c = b->cluster;
    struct block *peer = c && rank >= 0 && (unsigned)rank < c->n ? c->blocks[rank] : NULL;
    if (!peer)
        complain("sends to block %d of its cluster, which there is not", rank);
    else if (b->self->n_waits == 0)
        complain("sends to another block before it knows that that has begun");
    else if (has_ended(peer))
        complain("sends to block %d of its cluster, which has ended", rank);
    return *emulator_message ? NULL : peer;
}

void emulator_thread_ends(void)
{
    const struct thread *t = emulator_block->self;
    if (t->n_arrivals != t->n_waits) complain("has ended and not waited for its cluster");
}
