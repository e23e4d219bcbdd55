/* SPDX-License-Identifier: MIT
 * Stacks to switch between: each emulated thread has one. */
#ifndef QUERN_TESTS_EMULATOR_FIBER_H
#define QUERN_TESTS_EMULATOR_FIBER_H

#include <stdbool.h>
#include <stddef.h>

struct fiber {
    void *stack_pointer;
    void *stack; /* its lowest byte; NULL: the stack of the caller */
    size_t n_stack;
    void *sanitizer; /* what AddressSanitizer keeps of it */
};

struct fiber_stacks {
    char *memory;
    size_t n;
};

/* Memory for n stacks with a guard page below each.  False: none. */
bool fibers_reserve(struct fiber_stacks *stacks, size_t n);
void fibers_free(struct fiber_stacks *stacks);
/* A fiber on stack i begins in main when it is switched to next; main never returns. */
void fiber_begin(struct fiber *f, const struct fiber_stacks *stacks, size_t i, void (*main)(void));
/* Leaves from and goes on in to; last: from will not be switched to any more. */
void fiber_switch(struct fiber *from, struct fiber *to, bool last);
/* What a fiber does first. */
void fiber_entered(struct fiber *self, struct fiber *from);

#endif
