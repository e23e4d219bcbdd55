/* SPDX-License-Identifier: MIT
 * Ops: norms, gates, element by element.
 * Included by ops.h, which says what holds for all ops. */
#ifndef QUERN_OPS_NORM_H
#define QUERN_OPS_NORM_H

#include <quern/op_functions.h>

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
    struct qrn_tensor out;      /* as x; may be x or gate; optional if there is rounded */
    float eps;                  /* > 0, or 0; inside the root */
    struct qrn_tensor rounded;  /* as x, bf16 or Q8_ACT, optional: receives out as cast rounds it */
};
QRN_OP_FUNCTIONS(rms_norm);

/**
 * Rows scaled to length 1, times a factor.
 *
 *     out = scale * x / sqrt(sum(x^2) + eps)
 *
 * A row is the last dimension.  Rows of 0 elements are an error.
 */
struct qrn_l2_norm_args {
    struct qrn_tensor x;   /* [..., d], 1 to 4 dimensions */
    struct qrn_tensor out; /* as x; may be x */
    float eps;             /* > 0, or 0; inside the root */
    float scale;           /* finite; 0: 1 */
};
QRN_OP_FUNCTIONS(l2_norm);

/* Element by element: all tensors of one op have the same shape, 1 to 4 dimensions.  out may be bf16
 * or Q8_ACT: the float32 result as cast rounds it. */

/** out = x + y */
struct qrn_add_args {
    struct qrn_tensor x, y;
    struct qrn_tensor out; /* may be x or y */
};
QRN_OP_FUNCTIONS(add);

/** out = x * y */
struct qrn_mul_args {
    struct qrn_tensor x, y;
    struct qrn_tensor out; /* may be x or y */
};
QRN_OP_FUNCTIONS(mul);

/** out = gate / (1 + exp(-gate)) * up: the middle of a SwiGLU layer (arXiv:2002.05202). */
struct qrn_silu_mul_args {
    struct qrn_tensor gate, up;
    struct qrn_tensor out; /* may be gate or up */
    bool drops_inputs;     /* gate and up may hold anything afterwards: nobody reads them again */
};
QRN_OP_FUNCTIONS(silu_mul);

/** out = x / (1 + exp(-gate)): an output gate. */
struct qrn_sigmoid_mul_args {
    struct qrn_tensor x, gate;
    struct qrn_tensor out; /* may be x or gate */
};
QRN_OP_FUNCTIONS(sigmoid_mul);

/**
 * The same values in another type.  To f16 and bf16: round to nearest even, too large becomes
 * infinite, NaN stays NaN.  A float32 denormal that a block or an f64 decodes to may become 0.
 * To Q8_ACT: rounded to 8 bits by blocks of 128 (struct qrn_q8_act), for products with QRN_ACT_Q8.
 */
struct qrn_cast_args {
    struct qrn_tensor x;   /* [..., d]: f32, f16, bf16, f64, f8 or any GGUF block type */
    struct qrn_tensor out; /* as x: f32, f16, bf16 or Q8_ACT */
};
QRN_OP_FUNCTIONS(cast);

/** The same bytes elsewhere: any type, any strides on both sides. */
struct qrn_copy_args {
    struct qrn_tensor x;
    struct qrn_tensor out; /* type and shape of x */
};
QRN_OP_FUNCTIONS(copy);

#ifdef __cplusplus
}
#endif
#endif
