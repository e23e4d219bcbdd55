/* SPDX-License-Identifier: MIT
 * Lines for the host's log. */
#include "base/log.h"

#include <stdio.h>

void qrn_log(const struct qrn_host *host, enum qrn_log_level level, const char *format, ...)
{
    if (!host || !host->logger.write || level > host->logger.level) return;
    char line[1000];
    va_list ap;
    va_start(ap, format);
    (void)vsnprintf(line, sizeof line, format, ap);
    va_end(ap);
    host->logger.write(host->logger.user, level, line);
}
