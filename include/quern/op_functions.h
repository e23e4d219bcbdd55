/* SPDX-License-Identifier: MIT
 * The two functions that every op has, given the struct of its arguments; ops.h says what they do. */
#ifndef QUERN_OP_FUNCTIONS_H
#define QUERN_OP_FUNCTIONS_H

#include <quern/device.h>

#define QRN_OP_FUNCTIONS(name)                                                                \
    QRN_API enum qrn_status qrn_##name(struct qrn_device *dev,                                \
                                       const struct qrn_##name##_args *args,                  \
                                       struct qrn_error *err);                                \
    QRN_API void qrn_encode_##name(struct qrn_encoder *enc, const struct qrn_##name##_args *args)

#endif
