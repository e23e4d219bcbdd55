/* SPDX-License-Identifier: MIT
 * cpu.matmul.amx_bf16 and its matmul_id on emulated tiles. */
#include "emulated_tiles.h"

#include "backends/cpu/amx/matmul_amx_bf16.c"
