/* SPDX-License-Identifier: MIT
 * Ops: attention, its cache, masks and positions.
 * Included by ops.h, which says what holds for all ops. */
#ifndef QUERN_OPS_ATTENTION_H
#define QUERN_OPS_ATTENTION_H

#include <quern/device.h>

#ifdef __cplusplus
extern "C" {
#endif


#ifdef __cplusplus
}
#endif
#endif
