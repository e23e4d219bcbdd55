/* SPDX-License-Identifier: MIT
 * The device that the options ask for. */
#ifndef QUERN_TOOLS_OPEN_DEVICE_H
#define QUERN_TOOLS_OPEN_DEVICE_H

#include <quern/device.h>
#include "options.h"

enum { MAX_DEVICE_NAMES = 4 };

/* The devices that --device allows, the one to try first first and the CPU last; EXIT_OK, or
 * EXIT_FAILED after a line on standard error. */
int choose_devices(const struct options *options, const char *names[MAX_DEVICE_NAMES], size_t *n);

enum qrn_status open_device_named(const struct options *options, const char *name,
                                  struct qrn_device **out, struct qrn_error *err);

/* What --device names; auto: the CPU.  EXIT_OK, or EXIT_FAILED after a line on standard error. */
int open_device(const struct options *options, struct qrn_device **out);

#endif
