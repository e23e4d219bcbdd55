/* SPDX-License-Identifier: MIT
 * Ops: norms, gates, element by element.
 * Included by ops.h, which says what holds for all ops. */
#ifndef QUERN_OPS_NORM_H
#define QUERN_OPS_NORM_H

#include <quern/device.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Root-mean-square norm of rows, with what models put around it.
 *
 *     s   = x + residual                                   (residual optional, else s = x)
 *     out = s / sqrt(mean(s^2) + eps) * weight             (weight optional, else 1)
 *     out = out * silu(gate)                               (gate optional; silu(z) = z / (1 + exp(-z)))
 *
 * A row is the last dimension; per head is a row per head.  weight is used as it is: models that
 * store w for 1 + w are changed on loading.  Rows of 0 elements are an error.
 * Source: Zhang and Sennrich, arXiv:1910.07467; the gated form: Gated DeltaNet, arXiv:2412.06464.
 */
struct qrn_rms_norm_args {
    struct qrn_tensor x;        /* [..., d], 1 to 4 dimensions */
    struct qrn_tensor weight;   /* [d], optional */
    struct qrn_tensor residual; /* as x, optional */
    struct qrn_tensor gate;     /* as x, optional */
    struct qrn_tensor sum;      /* as x, optional: receives s; may be x or residual */
    struct qrn_tensor out;      /* as x; may be x or gate */
    float eps;                  /* > 0, or 0; inside the root */
};
QRN_OP_FUNCTIONS(rms_norm);

#ifdef __cplusplus
}
#endif
#endif
