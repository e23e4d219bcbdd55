/* SPDX-License-Identifier: MIT
 * Reference data and models outside the repository. */
#include "support/shared.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

const char *shared_path(const char *relative)
{
    static _Thread_local char paths[8][4096];
    static _Thread_local unsigned next;
    const char *root = getenv("QRN_SHARED");
    if (!root || !*root) root = "../shared";
    char *path = paths[next++ % 8];
    const int n = snprintf(path, sizeof paths[0], "%s/%s", root, relative);
    return n > 0 && (size_t)n < sizeof paths[0] && access(path, R_OK) == 0 ? path : NULL;
}
