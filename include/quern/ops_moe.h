/* SPDX-License-Identifier: MIT
 * Ops: mixture of experts.
 * Included by ops.h, which says what holds for all ops. */
#ifndef QUERN_OPS_MOE_H
#define QUERN_OPS_MOE_H

#include <quern/device.h>

#ifdef __cplusplus
extern "C" {
#endif


#ifdef __cplusplus
}
#endif
#endif
