/* SPDX-License-Identifier: MIT
 * The environment variables the library knows. */
#include "base/env.h"

#include <stdlib.h>

static const char *value_of(const char *variable)
{
    const char *value = getenv(variable);
    return value ? value : "";
}

struct qrn_env qrn_env_read(void)
{
    return (struct qrn_env){
#define X(name, variable, meaning) .name = value_of(variable),
        QRN_ENV_LIST(X)
#undef X
    };
}
