/* SPDX-License-Identifier: MIT
 * Lines for the host's log; nothing happens without one. */
#ifndef QUERN_BASE_LOG_H
#define QUERN_BASE_LOG_H

#include <quern/host.h>
#include "base/error.h"

/* host may be NULL.  Lines above the logger's level are not made; long ones are cut. */
void qrn_log(const struct qrn_host *host, enum qrn_log_level level, const char *format, ...)
    QRN_PRINTF(3, 4);

#endif
