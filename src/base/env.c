/* SPDX-License-Identifier: MIT
 * The environment variables the library knows. */
#include "base/env.h"

#include <stdlib.h>

struct qrn_env qrn_env_read(void)
{
    return (struct qrn_env){
#define X(name, variable, meaning) .name = getenv(variable),
        QRN_ENV_LIST(X)
#undef X
    };
}
