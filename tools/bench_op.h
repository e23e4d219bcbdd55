/* SPDX-License-Identifier: MIT
 * quern bench --op: every kernel of an op, timed. */
#ifndef QUERN_TOOLS_BENCH_OP_H
#define QUERN_TOOLS_BENCH_OP_H

#include "options.h"

int bench_op(const struct options *options);

#endif
