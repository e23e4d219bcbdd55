/* SPDX-License-Identifier: MIT
 * The emulated device's memory: the host's, poisoned, ending at a page that faults.  As long as no work
 * runs the host cannot touch it. */
#include "emulator/emulator.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ALIGNMENT = 64, POISON = 0xff }; /* floats of all ones are NaN, numbers are -1 */

struct range {
    struct range *next;
    char *begin;
    size_t n_bytes;
    void *map; /* of an allocation */
    size_t n_map;
};

static struct range *allocations, *shared;
static size_t n_in_use;

static size_t page_size(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static void let(const struct range *r, int protection)
{
    if (mprotect(r->map, r->n_map - page_size(), protection) != 0) abort();
}

/* The caller holds the lock. */
void emulator_open_memory(bool open)
{
    for (const struct range *r = allocations; r; r = r->next)
        let(r, open ? PROT_READ | PROT_WRITE : PROT_NONE);
}

static bool in_ranges(const struct range *r, const void *address)
{
    for (; r; r = r->next)
        if ((const char *)address >= r->begin && (const char *)address <= r->begin + r->n_bytes)
            return true;
    return false;
}

/* The caller holds the lock. */
bool emulator_is_known(const void *address)
{
    return in_ranges(allocations, address) || in_ranges(shared, address);
}

static struct range *new_allocation(size_t n_bytes)
{
    const size_t page = page_size(), used = (n_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT,
                 body = (used + page - 1) / page * page;
    struct range *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    r->n_map = body + page;
    r->map = mmap(NULL, r->n_map, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (r->map == MAP_FAILED || mprotect((char *)r->map + body, page, PROT_NONE) != 0) {
        free(r);
        return NULL;
    }
    memset(r->map, POISON, body);
    r->begin = (char *)r->map + body - used;
    r->n_bytes = n_bytes;
    let(r, PROT_NONE);
    return r;
}

EXPORTED CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t n_bytes)
{
    const CUresult state = emulator_context_state();
    if (state != CUDA_SUCCESS) return state;
    if (n_bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    emulator_enter();
    const bool fails = emulator_faults.fail_alloc && --emulator_faults.fail_alloc == 0;
    const bool fits =
        n_in_use <= emulator_faults.memory && n_bytes <= emulator_faults.memory - n_in_use;
    struct range *r = fails || !fits ? NULL : new_allocation(n_bytes);
    if (r) {
        n_in_use += n_bytes;
        r->next = allocations;
        allocations = r;
        emulator_counts.allocations++;
        *out = (CUdeviceptr)(uintptr_t)r->begin;
    }
    emulator_leave();
    return r ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Memory is given back on a lost device too, so that counts tell what was forgotten.  What lies
 * between the end and the next 64 bytes must still be poison. */
EXPORTED CUresult cuMemFree_v2(CUdeviceptr memory)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    if (!emulator_context()) return CUDA_ERROR_INVALID_CONTEXT;
    emulator_enter();
    emulator_do_pending();
    for (struct range **p = &allocations; *p; p = &(*p)->next) {
        struct range *r = *p;
        if ((uintptr_t)r->begin != memory) continue;
        result = emulator_context_state();
        let(r, PROT_READ | PROT_WRITE);
        for (const char *c = r->begin + r->n_bytes; (uintptr_t)c % ALIGNMENT; c++)
            if ((unsigned char)*c != POISON) result = CUDA_ERROR_ILLEGAL_ADDRESS;
        *p = r->next;
        (void)munmap(r->map, r->n_map);
        n_in_use -= r->n_bytes;
        free(r);
        emulator_counts.allocations--;
        break;
    }
    emulator_leave();
    return result;
}

EXPORTED CUresult cuMemGetInfo_v2(size_t *n_free, size_t *n_total)
{
    const CUresult state = emulator_context_state();
    if (state != CUDA_SUCCESS) return state;
    emulator_enter();
    *n_total = emulator_faults.memory;
    *n_free = emulator_faults.memory - n_in_use;
    emulator_leave();
    return CUDA_SUCCESS;
}

EXPORTED CUresult cuMemHostRegister_v2(void *begin, size_t n_bytes, unsigned flags)
{
    CUresult result = emulator_context_state();
    if (result != CUDA_SUCCESS) return result;
    if (!n_bytes || !(flags & CU_MEMHOSTREGISTER_DEVICEMAP)) return CUDA_ERROR_INVALID_VALUE;
    struct range *r = calloc(1, sizeof *r);
    if (!r) return CUDA_ERROR_OUT_OF_MEMORY;
    r->begin = begin;
    r->n_bytes = n_bytes;
    emulator_enter();
    for (const struct range *p = shared; p; p = p->next)
        if (p->begin < r->begin + n_bytes && r->begin < p->begin + p->n_bytes)
            result = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    if (result == CUDA_SUCCESS) {
        r->next = shared;
        shared = r;
        emulator_counts.shared_ranges++;
    }
    emulator_leave();
    if (result != CUDA_SUCCESS) free(r);
    return result;
}

EXPORTED CUresult cuMemHostUnregister(void *begin)
{
    CUresult result = CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    if (!emulator_context()) return CUDA_ERROR_INVALID_CONTEXT;
    emulator_enter();
    for (struct range **p = &shared; *p; p = &(*p)->next) {
        struct range *r = *p;
        if (r->begin != begin) continue;
        *p = r->next;
        free(r);
        emulator_counts.shared_ranges--;
        result = CUDA_SUCCESS;
        break;
    }
    emulator_leave();
    return result;
}
