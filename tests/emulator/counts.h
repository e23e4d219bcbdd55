/* SPDX-License-Identifier: MIT
 * What is alive in the emulator: tests ask by dlsym. */
#ifndef QUERN_TESTS_EMULATOR_COUNTS_H
#define QUERN_TESTS_EMULATOR_COUNTS_H

#ifdef __cplusplus
extern "C" {
#endif

struct emulated_counts {
    long allocations, shared_ranges, modules, streams, events, graphs, graph_execs, contexts;
    long launches, graph_launches, captures; /* so far */
    long depth;                              /* of contexts that the calling thread has pushed */
};

/* Fills in *out. */
void emulated_count(struct emulated_counts *out);

#ifdef __cplusplus
}
#endif
#endif
