/* SPDX-License-Identifier: MIT
 * cpu.matmul.amx_q8 and its matmul_id on emulated tiles. */
#include "emulated_tiles.h"

#include "backends/cpu/amx/matmul_amx_q8.c"
