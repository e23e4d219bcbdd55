/* SPDX-License-Identifier: MIT
 * Switching stacks: callee-saved registers are pushed, the stack pointer is exchanged. */
#include "emulator/fiber.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

enum { N_STACK = 128 * 1024, N_GUARD = 4096 };

void fiber_exchange(void **save, void *load);

#if defined(__x86_64__)
__asm__(".text\n"
        ".globl fiber_exchange\n"
        ".hidden fiber_exchange\n"
        ".type fiber_exchange, @function\n"
        "fiber_exchange:\n"
        "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n"
        "    pushq %r13\n    pushq %r14\n    pushq %r15\n"
        "    movq %rsp, (%rdi)\n    movq %rsi, %rsp\n"
        "    popq %r15\n    popq %r14\n    popq %r13\n"
        "    popq %r12\n    popq %rbx\n    popq %rbp\n"
        "    ret\n"
        ".size fiber_exchange, . - fiber_exchange\n");
enum { N_SAVED = 6, N_FRAME = 8 }; /* saved, where to return, one to align */
static const size_t main_at = 6;
#elif defined(__aarch64__)
__asm__(".text\n"
        ".globl fiber_exchange\n"
        ".hidden fiber_exchange\n"
        ".type fiber_exchange, %function\n"
        "fiber_exchange:\n"
        "    sub sp, sp, #160\n"
        "    stp x19, x20, [sp, #0]\n    stp x21, x22, [sp, #16]\n"
        "    stp x23, x24, [sp, #32]\n    stp x25, x26, [sp, #48]\n"
        "    stp x27, x28, [sp, #64]\n    stp x29, x30, [sp, #80]\n"
        "    stp d8, d9, [sp, #96]\n    stp d10, d11, [sp, #112]\n"
        "    stp d12, d13, [sp, #128]\n    stp d14, d15, [sp, #144]\n"
        "    mov x9, sp\n    str x9, [x0]\n    mov sp, x1\n"
        "    ldp x19, x20, [sp, #0]\n    ldp x21, x22, [sp, #16]\n"
        "    ldp x23, x24, [sp, #32]\n    ldp x25, x26, [sp, #48]\n"
        "    ldp x27, x28, [sp, #64]\n    ldp x29, x30, [sp, #80]\n"
        "    ldp d8, d9, [sp, #96]\n    ldp d10, d11, [sp, #112]\n"
        "    ldp d12, d13, [sp, #128]\n    ldp d14, d15, [sp, #144]\n"
        "    add sp, sp, #160\n    ret\n"
        ".size fiber_exchange, . - fiber_exchange\n");
enum { N_FRAME = 20 };
static const size_t main_at = 11;
#else
#error "the emulator knows how to switch stacks on x86-64 and AArch64"
#endif

bool fibers_reserve(struct fiber_stacks *stacks, size_t n)
{
    if (n <= stacks->n) return true;
    const size_t each = N_STACK + N_GUARD;
    char *m = mmap(NULL, n * each, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (m == MAP_FAILED) return false;
    for (size_t i = 0; i < n; i++)
        if (mprotect(m + i * each, N_GUARD, PROT_NONE) != 0) {
            (void)munmap(m, n * each);
            return false;
        }
    fibers_free(stacks);
    *stacks = (struct fiber_stacks){m, n};
    return true;
}

void fibers_free(struct fiber_stacks *stacks)
{
    const size_t n_bytes = stacks->n * (N_STACK + N_GUARD);
    if (!stacks->memory) return;
#if defined(__SANITIZE_ADDRESS__)
    /* Fibers that never came to their end have left marks. */
    __asan_unpoison_memory_region(stacks->memory, n_bytes);
#endif
    (void)munmap(stacks->memory, n_bytes);
    *stacks = (struct fiber_stacks){NULL, 0};
}

void fiber_begin(struct fiber *f, const struct fiber_stacks *stacks, size_t i, void (*main)(void))
{
    char *low = stacks->memory + i * (N_STACK + N_GUARD) + N_GUARD;
    void **frame = (void **)(void *)(low + N_STACK) - N_FRAME;
    memset(frame, 0, N_FRAME * sizeof *frame);
    memcpy(&frame[main_at], &main, sizeof main);
    *f = (struct fiber){.stack_pointer = frame, .stack = low, .n_stack = N_STACK};
}

void fiber_switch(struct fiber *from, struct fiber *to, bool last)
{
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(last ? NULL : &from->sanitizer, to->stack, to->n_stack);
    fiber_exchange(&from->stack_pointer, to->stack_pointer);
    __sanitizer_finish_switch_fiber(from->sanitizer, NULL, NULL);
#else
    (void)last;
    fiber_exchange(&from->stack_pointer, to->stack_pointer);
#endif
}

void fiber_entered(struct fiber *self, struct fiber *from)
{
#if defined(__SANITIZE_ADDRESS__)
    const void *stack = NULL;
    size_t n = 0;
    __sanitizer_finish_switch_fiber(NULL, &stack, &n);
    union {
        const void *in;
        void *out;
    } u = {.in = stack};
    from->stack = u.out; /* where to come back to */
    from->n_stack = n;
    (void)self;
#else
    (void)self;
    (void)from;
#endif
}
