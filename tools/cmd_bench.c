/* SPDX-License-Identifier: MIT
 * quern bench: the speed of a model, or of the kernels of an op. */
#include "bench_model.h"
#include "bench_op.h"
#include "report.h"

int cmd_bench(const struct options *o)
{
    if (!o->op && o->op_case) return fail_usage("bench", "--case goes with --op");
    if (!o->op && o->rotate) return fail_usage("bench", "--rotate goes with --op");
    if (!o->op && o->sizes.n) return fail_usage("bench", "--sizes goes with --op");
    if (!o->op && o->kernel) return fail_usage("bench", "--kernel goes with --op");
    if (!o->op && o->seconds > 0.0) return fail_usage("bench", "--seconds goes with --op");
    if (!o->op) return bench_model(o);
    if (o->n_threads.n > 1) return fail_usage("bench", "--op wants one number of --threads");
    struct options with = *o;
    with.threads = o->n_threads.at[0];
    return bench_op(&with);
}
