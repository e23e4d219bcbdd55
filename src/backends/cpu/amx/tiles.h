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

/* Tiles whose rows are 64 bytes apart, from or to base + offset, a constant: the intrinsics want an address in a
 * register for each, of which gcc keeps many in vector registers, a port that products need.  To gcc neither reads
 * or writes memory. */
#define TILE_LOAD(tile, base, offset)                      \
    __asm__ volatile("tileloadd %c2(%0,%1,1), %%tmm" #tile \
                     :                                     \
                     : "r"(base), "r"((int64_t)64), "i"((int64_t)(offset)))
#define TILE_STORE(tile, base, offset)                         \
    __asm__ volatile("tilestored %%tmm" #tile ", %c2(%0,%1,1)" \
                     :                                         \
                     : "r"(base), "r"((int64_t)64), "i"((int64_t)(offset)))

#endif
