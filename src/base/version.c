/* SPDX-License-Identifier: MIT */
#include <quern/version.h>

const char *qrn_version(void)
{
    return QRN_VERSION_STRING;
}
