/* SPDX-License-Identifier: MIT
 * The device that the options ask for. */
#ifndef QUERN_TOOLS_OPEN_DEVICE_H
#define QUERN_TOOLS_OPEN_DEVICE_H

#include <quern/device.h>
#include "options.h"

/* EXIT_OK, or another exit status after a line on standard error. */
int open_device(const struct options *options, struct qrn_device **out);

#endif
