/* SPDX-License-Identifier: MIT
 * quern: runs language models that mix Gated DeltaNet layers with attention.  Includes everything. */
#ifndef QUERN_H
#define QUERN_H

#include <quern/device.h>
#include <quern/dtype.h>
#include <quern/host.h>
#include <quern/model.h>
#include <quern/ops.h>
#include <quern/quantize.h>
#include <quern/status.h>
#include <quern/tensor.h>
#include <quern/text.h>
#include <quern/version.h>

#endif
