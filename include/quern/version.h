/* SPDX-License-Identifier: MIT
 * The version of the library: of these headers, and of the library that is running. */
#ifndef QUERN_VERSION_H
#define QUERN_VERSION_H

#include <quern/status.h>

#define QRN_VERSION_MAJOR 0
#define QRN_VERSION_MINOR 1
#define QRN_VERSION_PATCH 0
#define QRN_VERSION_STRING "0.1.0"

#ifdef __cplusplus
extern "C" {
#endif

/** The version of the running library, "MAJOR.MINOR.PATCH".  A static string; any thread. */
QRN_API const char *qrn_version(void);

#ifdef __cplusplus
}
#endif
#endif
