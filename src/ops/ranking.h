/* SPDX-License-Identifier: MIT
 * The order that argmax, top_k, moe_route and sample rank by, as the references have it. */
#ifndef QUERN_OPS_RANKING_H
#define QUERN_OPS_RANKING_H

#include <math.h>
#include "core/op.h"

/* Element a of a row comes before element b: larger, then lower; NaN last. */
static inline bool qrn_ref_before(const struct qrn_tensor *t, int64_t row, int64_t a, int64_t b)
{
    const double x = qrn_ref_get(t, row, a, 0, 0), y = qrn_ref_get(t, row, b, 0, 0);
    if (isnan(x) || isnan(y)) return isnan(x) == isnan(y) ? a < b : isnan(y);
    return x != y ? x > y : a < b;
}

#endif
