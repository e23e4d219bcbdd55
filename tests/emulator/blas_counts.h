/* SPDX-License-Identifier: MIT
 * What is alive in the emulated cuBLASLt, and what it was asked for: tests ask by dlsym. */
#ifndef QUERN_TESTS_EMULATOR_BLAS_COUNTS_H
#define QUERN_TESTS_EMULATOR_BLAS_COUNTS_H

struct emulated_blas_counts {
    long handles, descriptions;
    long searches, products; /* so far; products when they are done */
    long algorithm;          /* of the last product: its place in what was found */
};

/* Fills in *out. */
void emulated_blas_count(struct emulated_blas_counts *out);

#endif
