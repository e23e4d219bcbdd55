/* SPDX-License-Identifier: MIT
 * Ops: from logits to tokens.
 * Included by ops.h, which says what holds for all ops. */
#ifndef QUERN_OPS_SAMPLING_H
#define QUERN_OPS_SAMPLING_H

#include <quern/device.h>

#ifdef __cplusplus
extern "C" {
#endif


#ifdef __cplusplus
}
#endif
#endif
