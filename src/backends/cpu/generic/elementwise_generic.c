/* SPDX-License-Identifier: MIT
 * add, mul, silu_mul, sigmoid_mul in portable C. */
#include <math.h>

#include "backends/cpu/elementwise_walk.h"
#include "backends/cpu/generic/round_generic.h"

static inline float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

#define ELEMENTWISE(op, x_, y_, formula)                                              \
    static void op##_row(const float *x, const float *y, float *out, int64_t n)       \
    {                                                                                 \
        for (int64_t i = 0; i < n; i++) {                                             \
            const float a = x[i], b = y[i];                                           \
            out[i] = formula;                                                         \
        }                                                                             \
    }                                                                                 \
    QRN_ELEMENTWISE_KERNEL(op, generic, 0, x_, y_)

ELEMENTWISE(add, x, y, a + b)
ELEMENTWISE(mul, x, y, a *b)
ELEMENTWISE(silu_mul, gate, up, a / (1.0f + expf(-a)) * b)
ELEMENTWISE(sigmoid_mul, x, gate, a *sigmoid(b))
