/* SPDX-License-Identifier: MIT
 * quern bench of a model: what is measured, and how it is printed. */
#ifndef QUERN_TOOLS_BENCH_MODEL_H
#define QUERN_TOOLS_BENCH_MODEL_H

#include "open_model.h"

int bench_model(const struct options *options);

/* One row of the results: a prompt (n_gen 0) or a generation (n_prompt 0) after n_depth tokens, in
 * n_seqs sequences at once. */
struct bench_test {
    int64_t n_prompt, n_gen, n_depth, n_seqs;
    const int64_t *samples_ns; /* [n_samples] */
    int64_t n_samples;
};

/* What all rows share. */
struct bench_subject {
    const struct options *options;
    const struct opened *opened;
    char type[128]; /* "qwen35 11.05M Q4_0" */
    uint64_t size;  /* bytes of the tensors in the files */
};

/* bench_print.c: a header, a row for each test, a footer. */
void bench_print_begin(const struct bench_subject *subject);
int bench_print_test(const struct bench_subject *subject, const struct bench_test *test,
                     bool first);
void bench_print_end(const struct bench_subject *subject);

#endif
