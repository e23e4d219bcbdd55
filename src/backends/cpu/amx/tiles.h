/* SPDX-License-Identifier: MIT
 * Setting up the tiles of a lane. */
#ifndef QUERN_AMX_TILES_H
#define QUERN_AMX_TILES_H

#include <immintrin.h>
#include "base/amx.h"

/* gcc 12 takes _tile_loadconfig to read 8 bytes and drops what else was written. */
static inline void tiles_configure(const struct qrn_amx_config *config)
{
    __asm__ volatile("ldtilecfg %0" ::"m"(*config) : "memory");
}

#endif
