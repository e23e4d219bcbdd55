/* SPDX-License-Identifier: MIT
 * AMX: tiles are there when the processor has them, the system lets this process use them, and a
 * child process has shown that they work. */
#ifndef QUERN_BASE_AMX_H
#define QUERN_BASE_AMX_H

#include <stdint.h>

/* What ldtilecfg reads: rows and bytes a row of each tile. */
struct qrn_amx_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* The AMX bits of features (enum qrn_cpu_feature) that may be used: asks the system for leave, then
 * runs a small tile program with a known answer in a child process, which may die of it.  The leave
 * is for the whole process and stays.  Nothing of the caller's is touched: the child sends no
 * signal at its end, no other wait sees it.  Any thread; costs a fork. */
uint64_t qrn_amx_proven(uint64_t features);

#endif
