/* SPDX-License-Identifier: MIT
 * Whether operands share memory. */
#ifndef QUERN_CORE_OVERLAP_H
#define QUERN_CORE_OVERLAP_H

#include "core/op.h"

/* The same elements in the same order. */
bool qrn_same_view(const struct qrn_tensor *t, const struct qrn_tensor *u);

/* Whether t, which is operand o, shares no byte with u, which is operand p; absent ones share none.
 * Columns of one matrix are apart.  Where an operand leads by addresses is not looked at. */
bool qrn_are_apart(const struct qrn_operand *o, const struct qrn_tensor *t,
                   const struct qrn_operand *p, const struct qrn_tensor *u);

#endif
