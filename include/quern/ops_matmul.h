/* SPDX-License-Identifier: MIT
 * Ops: matrix products, plain and by expert, and rows of an embedding.
 * Included by ops.h, which says what holds for all ops. */
#ifndef QUERN_OPS_MATMUL_H
#define QUERN_OPS_MATMUL_H

#include <quern/device.h>

#ifdef __cplusplus
extern "C" {
#endif

/** How activations enter a product. */
enum qrn_activation_type {
    QRN_ACT_F32, /* as they are */
    QRN_ACT_Q8   /* rounded to 8 bits by blocks of 32 along K: d = max|x| / 127, q = round(x / d) */
};

/** How a weight matrix lies in memory. */
enum qrn_weight_layout {
    QRN_LAYOUT_ROWS,  /* as in the file: rows of blocks, one after the other */
    QRN_LAYOUT_PACKED /* as matmul_pack made it, for this device and activation type only */
};

#ifdef __cplusplus
}
#endif
#endif
